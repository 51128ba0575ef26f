"""Accepted outcomes: workers record which of their outcomes were accepted, and a check of that."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ...ops.finish import Finished, finish, finish_with_keys
from ...ops.finish_and_claim import finish_and_claim
from ...ops.operation import Op, Statement
from ...worker import local
from ..checks.checker import Violation
from ..checks.evidence import Evidence
from ..ledger import Ledger
from ..worker_settings import CampaignWorkerOptions
from ..workload import Workload
from .long_campaign import run_worker

FINISHING = finish, finish_with_keys, finish_and_claim
WORKER_PARTS = f"{local.__package__}."  # all imported by `local`


class LostCommits(NamedTuple):
    """Writes that a server accepted in this interval were lost with it."""

    port: int
    since: float
    until: float


def run_watched_worker(
    work: Workload, url: str, settings: CampaignWorkerOptions, number: int
) -> None:
    """In a child: a worker that records its accepted outcomes, with the server."""
    work.use_prepared(replace(work.workspace, url=url))
    recorded = {operation: recording(operation, work.ledger) for operation in FINISHING}
    modules = [module for name, module in sys.modules.items() if name.startswith(WORKER_PARTS)]
    for module in modules:  # wherever a part of the worker imports them
        for operation, replacement in recorded.items():
            if vars(module).get(operation.__name__) is operation:
                setattr(module, operation.__name__, replacement)
    run_worker(work, settings, number)


def recording(operation: Callable[..., Op[Any]], ledger: Ledger) -> Callable[..., Op[Any]]:
    def run(*args: object, **kwargs: object) -> Op[Any]:
        answer = yield from operation(*args, **kwargs)
        finished: Finished = answer[0] if isinstance(answer, tuple) else answer
        for transition in finished.lost:
            ledger.write("outdated", transition.claim.id, transition.claim.fence)
        if finished.accepted:
            ((port,),) = yield Statement("outlast.verify:server_port")
            for transition, _ in finished.accepted:
                id, fence, owner = transition.claim.claim_key
                ledger.write("accepted", id, fence, [owner, port])
        return answer

    return run


def duplicate_owners(evidence: Evidence, lost: Sequence[LostCommits] = ()) -> Iterator[Violation]:
    """I3: a claim was accepted for one owner, the one in the row."""
    owners: dict[tuple[str, int], set[str]] = defaultdict(set)
    for entry in evidence.entries("accepted"):
        owner, port = entry.data
        gone = any(one.port == port and one.since <= entry.at <= one.until for one in lost)
        if not gone and entry.subject in evidence.rows:
            owners[entry.subject, entry.fence].add(owner)
    for (id, fence), accepted in owners.items():
        row = evidence.rows[id]
        if len(accepted) > 1:
            message = f"claim {fence} was accepted for {len(accepted)} owners: {sorted(accepted)}"
            yield Violation("I3", id, "zombie", message, row.queue)
        if row.fence == fence and row.worker is not None and row.worker not in accepted:
            message = f"claim {fence} is {row.worker}'s, and was accepted for {sorted(accepted)}"
            yield Violation("I3", id, "zombie", message, row.queue)
