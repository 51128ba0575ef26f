"""`outlast verify failover --async`: commits are lost, and two primaries run side by side.

    cut       the standby is disconnected; jobs that both servers have are claimed at the primary
    split     the standby is promoted, and half of the workers connect to it: they claim the same
              jobs under the same fences, while the other half continue at the old primary
    die       the old primary is stopped: its workers report their outcomes to the new one
    rebuild   it comes back as the standby of the new one

The surviving history is that of the current primaries, up to the cut and from the promotion on. In
it, no claim may be accepted for two owners, and every remaining job must have ended. Lost
acknowledged jobs are counted: asynchronous replication loses them.
"""

from __future__ import annotations

import asyncio
import faulthandler
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

from ...ops.finish import Finished
from ...ops.operation import Op, Statement
from ...worker import finisher, local
from ..checks.checker import (
    Violation,
    history_violations,
    leftover_rows,
    orphaned_jobs,
    partial_batches,
    unfinished_jobs,
)
from ..checks.evidence import Evidence, collect
from ..checks.judge import Verdict, settle
from ..children import ChildExit
from ..faults.standby import ReplicaNode
from ..ledger import Ledger
from ..workload import Workload
from ..workspace import Workspace
from .failover import Failover
from .long_campaign import JUDGE_TIMEOUT_S, run_worker

CONTESTED_QUEUE = "contested"  # the queue whose jobs both sides claim
JOBS_PER_FAILOVER = 60  # per failover
JOB_RANGE_S = (0.3, 2.5)  # seconds that such a job runs
SPLIT_RANGE_S = (0.4, 1.2)  # seconds with two primaries
SIDES = ("left", "right")  # names of connections; each prefers one server


class LostCommits(NamedTuple):
    """Writes that a server accepted in this interval were lost with it."""

    port: int
    since: float
    until: float


class SplitBrain(Failover):
    columns = ("failovers", "enqueued", "lost", "contested", "refused")
    worker_settings: ClassVar[dict[str, Any]] = {"lease": 6.0, "renew_every": 2.0}
    jobs_per_second = 80.0
    drain_within_s = 5.0  # lost acknowledged jobs never start

    def start_load(self) -> None:
        self.lost: list[LostCommits] = []
        self.urls = {side: self._url(side, node) for side, node in self._preferred().items()}
        self.other_workers = self.process_group("right", self._body("right"))
        super().start_load()
        self.other_workers.start_missing(self.options.at_once or self.default_workers)

    def worker_body(self) -> Callable[[int], object]:
        return self._body("left")

    def _body(self, side: str) -> Callable[[int], object]:
        return partial(run_watched_worker, self.work, self.urls[side], self.worker_settings)

    def _preferred(self) -> dict[str, ReplicaNode]:
        return dict(zip(SIDES, self.pair.nodes, strict=True))

    def _url(self, side: str, node: ReplicaNode) -> str:
        return self.pair.url_of(node, application_name=side)

    # One failover

    def attach_standby(self) -> None:
        """The standby follows the primary by itself."""

    def crash_and_resume(self) -> None:
        pair, old = self.pair, self.pair.primary
        self.keep_working(0.3, 1.0)
        self._run_at(old, prepare_contest)
        cut_at = time.monotonic()  # the standby has everything up to here
        pair.wait_caught_up(self.read_ledger)
        pair.cut()
        self._run_at(old, begin_contest)
        self.keep_working(*SPLIT_RANGE_S)
        pair.promote()
        self._disconnect_from(old)
        self._run_at(pair.primary, begin_contest)
        self.keep_working(*SPLIT_RANGE_S)
        old.crash(self.read_ledger)
        self.lost.append(LostCommits(old.port, cut_at, time.monotonic()))
        self.read_ledger()
        self.backlog.waiting.clear()  # some of these are lost
        pair.rebuild(self.children, self.read_ledger)

    def _run_at(self, node: ReplicaNode, action: Callable[[Workload], object]) -> None:
        """In a child: run something on one of the servers."""
        workspace = replace(self.workspace, url=node.url)
        self.children.run_all(partial(run_at, self.work, workspace, action))

    def _disconnect_from(self, old: ReplicaNode) -> None:
        """Workers that prefer the new primary lose their connections to the old one."""
        (side,) = (side for side, node in self._preferred().items() if node is not old)
        query = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
        old.query(f"{query} WHERE application_name = '{side}'")

    # The end

    def drain(self, *others: Any) -> None:
        super().drain(self.other_workers, *others)

    def _judge(self) -> None:
        ends: list[ChildExit] = []
        look = partial(judge_survivors, self.work, self.workspace, tuple(self.lost))
        self.children.start(look, ends.append)
        while not ends:
            self.poll()
        if verdict := self.record_verdict(self.workspace, {}, ends[0]):
            for what, number in verdict.facts.items():
                self.results.counts_of("load").add(what, number)
            if not verdict.facts["contested"]:
                message = "no job was claimed twice under one fence: this run proves nothing"
                self.results.add_violation("load", "load", message)


def run_at(work: Workload, workspace: Workspace, action: Callable[[Workload], object]) -> None:
    work.use_prepared(workspace)
    action(work)
    work.ol.close()


def prepare_contest(work: Workload) -> None:
    """Jobs that are not claimed yet."""
    work.ol.pause(CONTESTED_QUEUE)
    least, most = JOB_RANGE_S
    spans = [least + (most - least) * n / JOBS_PER_FAILOVER for n in range(JOBS_PER_FAILOVER)]
    task = work.naps.using(queue=CONTESTED_QUEUE)
    for job in work.ol.enqueue(*(task.job(seconds=seconds) for seconds in spans)):
        work.ledger.write("promised", job.id, 0, ["succeeded"])


def begin_contest(work: Workload) -> None:
    work.ol.resume(CONTESTED_QUEUE)


# Accepted outcomes


def run_watched_worker(work: Workload, url: str, settings: dict[str, Any], number: int) -> None:
    """In a child: a worker that records its accepted outcomes, with the server."""
    work.use_prepared(replace(work.workspace, url=url))
    operations = (local, "finish_and_claim"), (finisher, "finish"), (finisher, "finish_with_keys")
    for module, name in operations:
        setattr(module, name, recording(getattr(module, name), work.ledger))
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


# The checker


def judge_survivors(work: Workload, workspace: Workspace, lost: Sequence[LostCommits]) -> None:
    """In a child: settle the remaining jobs, and check the surviving history."""
    faulthandler.cancel_dump_traceback_later()
    store = work.ol.store
    store.settings = replace(
        store.settings, statement_timeout=JUDGE_TIMEOUT_S, deadline=JUDGE_TIMEOUT_S
    )
    work.ol.resume(CONTESTED_QUEUE)
    asyncio.run(settle(work.ol))
    evidence = collect(store, work.ledger.read(), workspace.business_rows())
    work.ol.close()
    rules = (unfinished_jobs, partial_batches, orphaned_jobs, history_violations, leftover_rows)
    wrong = [found for rule in rules for found in rule(evidence)]
    wrong += duplicate_owners(evidence, lost)
    Verdict(wrong, len(evidence.rows), facts=counts(evidence)).write(workspace.verdict_file)


def duplicate_owners(evidence: Evidence, lost: Sequence[LostCommits]) -> Iterator[Violation]:
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


def counts(evidence: Evidence) -> dict[str, int]:
    """Lost acknowledged jobs; claims that two processes ran under one fence; and refused outcomes
    of jobs that still exist."""
    promised = {entry.subject for entry in evidence.entries("promised")}
    ran: dict[tuple[str, int], set[int]] = defaultdict(set)
    for entry in evidence.entries("began"):
        ran[entry.subject, entry.fence].add(entry.pid)
    return {
        "lost": len(promised - evidence.rows.keys()),
        "contested": sum(len(pids) > 1 for pids in ran.values()),
        "refused": sum(entry.subject in evidence.rows for entry in evidence.entries("outdated")),
    }
