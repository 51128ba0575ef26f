"""Claims: a worker claims ready jobs, in the round trip in which it reports finished ones."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import starmap
from operator import attrgetter
from typing import NamedTuple

from ..model.breaker import Circuit, OpenBreaker
from ..model.claim import Claim
from .lanes import LaneClaim, LaneTurn, claim_lanes
from .operation import Op, Pipeline, Row, Rows, Statement

# Rows beyond the wanted number that are searched for more jobs of one task.
SCAN_AHEAD_ROWS = 1000


class ClaimCursor(NamedTuple):
    """A position in the order of a queue."""

    priority: int
    run_at: float
    id: str


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """A claim request of a worker: the queue, the maximum number of jobs, and the lease."""

    worker: str
    queue: str
    limit: int
    lease: float
    unknown: Collection[str] = ()  # tasks that this worker has seen and cannot run
    promote: bool = True
    # Whether one of them may be a job whose next crash ends it.
    allow_one_crash_left: bool = True
    task: str | None = None  # only this one's, for a batch that is being gathered
    cursor: ClaimCursor | None = None  # start here, within this priority
    other_queues: tuple[str, ...] = ()  # queues to claim from after this one, in the same statement
    known: Collection[str] | None = None  # only these tasks, where too many are unknown
    turn: LaneTurn | None = None  # for a limited queue, which is claimed by lanes
    longest_due: bool = False  # from the priority whose first job has been due longest

    @property
    def queues(self) -> tuple[str, ...]:
        return (self.queue, *self.other_queues)

    @property
    def per_queue_limit(self) -> int:
        """The maximum per queue of a claim over several: together they can fill the limit."""
        return -(-self.limit // len(self.queues))

    def by_lanes(self) -> LaneClaim:
        """This request for a limited queue."""
        params = {"known": True, "tenant": None, **self._task_params()}
        turn = self._turn()
        if self.task is not None:
            params |= {"known": True, "tasks": json.dumps([self.task]), "last_life": False}
            turn = replace(turn, longest_due=False)
        params |= {"worker": self.worker, "lease": self.lease}
        return LaneClaim(params, self.queue, self.limit, turn, self.promote, self.takes_runs)

    @property
    def takes_runs(self) -> bool:
        """Whether the claim may contain several jobs of an ordered lane: one process gets all."""
        return True

    def _turn(self) -> LaneTurn:
        return self.turn or LaneTurn()

    def statements(self) -> list[Statement]:
        """Statements of the claim. Due jobs are made ready first, so that no delay depends on
        another process."""
        claim = self._claim()
        return [Statement("promote_due", {"limit": 1000}), claim] if self.promote else [claim]

    def _claim(self) -> Statement:
        if self.task is not None:
            scan_limit = self.limit + SCAN_AHEAD_ROWS
            params = {**self._common_params(), "queue": self.queue}
            return Statement("claim_items", {**params, "task": self.task, "reach": scan_limit})
        return self._statement(
            "claim", "claim_on", {**self._common_params(), **self._task_params()}
        )

    def _common_params(self) -> dict[str, object]:
        return {"worker": self.worker, "limit": self.limit, "lease": self.lease}

    def _task_params(self) -> dict[str, object]:
        known = self.known is not None
        tasks = json.dumps(sorted(self.unknown if self.known is None else self.known))
        return {"tasks": tasks, "known": known, "last_life": self.allow_one_crash_left}

    def _statement(self, head: str, from_cursor: str, params: dict[str, object]) -> Statement:
        """A claim from one queue, from its head or from a cursor, or from several queues."""
        if self.other_queues:
            rows = [{"queue": queue} for queue in self.queues]
            params = {"known": True, "tenant": None, **params, "each": self.per_queue_limit}
            return Statement("claim_across", params, rows)
        params["queue"] = self.queue
        if self.longest_due:
            start = self.cursor._asdict() if self.cursor else dict.fromkeys(ClaimCursor._fields)
            return Statement(
                "claim_longest_due", {"known": True, "tenant": None, **params, **start}
            )
        if self.cursor is None:
            return Statement(head, params)
        return Statement(from_cursor, {**params, **self.cursor._asdict()})


def claim(request: ClaimRequest) -> Op[list[Claim]]:
    """Claim jobs; returns them in the order in which they should start."""
    if request.turn is not None:
        return (yield from claim_lanes(request.by_lanes()))
    *_, rows = yield Pipeline(request.statements())
    return in_order(rows)


def in_order(rows: Rows) -> list[Claim]:
    """Sort claims for their start: RETURNING promises no order."""
    claims = sorted(starmap(Claim, rows), key=attrgetter("run_at", "id"))
    return sorted(claims, key=attrgetter("priority"), reverse=True)


@dataclass(frozen=True, slots=True)
class PendingQueues:
    """Queues with work, as an idle worker sees them."""

    queues: list[str]  # with a ready job, and not paused
    due: bool  # scheduled jobs are due and not ready yet
    breakers: tuple[OpenBreaker, ...] = ()
    limited: frozenset[str] = frozenset()  # the queues that are claimed by lanes


def poll() -> Op[PendingQueues]:
    """Whether there is anything to claim. Reads a few index entries and locks nothing."""
    return _read_pending((yield Statement("poll")))


def poll_queues(queues: Sequence[str]) -> Op[PendingQueues]:
    """The same for named queues: the number of other queues does not affect the cost."""
    return _read_pending(
        (yield Statement("poll_queues", rows=[{"queue": queue} for queue in queues]))
    )


def _read_pending(rows: Rows) -> PendingQueues:
    queues = [queue for queue, task, *_ in rows if isinstance(queue, str) and task is None]
    due = any(queue is None for queue, *_ in rows)
    breakers = tuple(read_breaker(row) for row in rows if row[1] is not None)
    limited = frozenset(row[0] for row in rows if row[1] is None and row[-1])
    return PendingQueues(queues, due, breakers, limited)


def read_breaker(row: Row) -> OpenBreaker:
    queue, task, opening, kind, opened_at, probes, due = row
    circuit = Circuit(queue, task)
    return OpenBreaker(circuit, opening, kind, float(opened_at), int(probes), bool(due))


def promote(limit: int = 1000) -> Op[None]:
    """Make due jobs ready. A claim does this, too; this is for workers that see only due ones."""
    yield Statement("promote_due", {"limit": limit})
