"""A worker takes jobs, and in the same breath gives back what it has done."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import Any, NamedTuple

from ..model.breaker import Circuit, OpenBreaker
from ..model.job import Claim
from .statement import Op, Row, Rows, Statement, Together

REACH = 1000  # rows that are looked through for more of one task, beyond as many as are wanted


class Place(NamedTuple):
    """Where a job stands in its queue."""

    priority: int
    run_at: float
    id: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a worker asks for: so many jobs of one queue, under its name, for so long."""

    worker: str
    queue: str
    limit: int
    lease: float
    unknown: Collection[str] = ()  # tasks this worker has met and cannot run
    promote: bool = True
    last_life: bool = True  # may one that a further lost worker would end be among them?
    task: str | None = None  # only this one's, for a batch that is being gathered
    place: Place | None = None  # only from here on, and of this priority
    others: tuple[str, ...] = ()  # queues to ask after this one, in the same statement
    known: Collection[str] | None = None  # only these tasks, where too many are unknown

    @property
    def queues(self) -> tuple[str, ...]:
        return (self.queue, *self.others)

    @property
    def each(self) -> int:
        """Jobs of one queue, where several are asked."""
        return max(1, self.limit // (1 + len(self.others)))

    def statements(self) -> list[Statement]:
        """Due jobs are made ready first, so no other process is on the path of a delay."""
        claim = self._claim()
        return [Statement("promote_due", {"limit": 1000}), claim] if self.promote else [claim]

    def _claim(self) -> Statement:
        if self.task is not None:
            reach = self.limit + REACH
            given = {**self._given(), "queue": self.queue}
            return Statement("claim_items", {**given, "task": self.task, "reach": reach})
        names = ("claim", "claim_on", "claim_across")
        return self._statement(*names, {**self._given(), **self._startable()})

    def _given(self) -> dict[str, Any]:
        return {"worker": self.worker, "limit": self.limit, "lease": self.lease}

    def _startable(self) -> dict[str, Any]:
        known = self.known is not None
        tasks = json.dumps(sorted(self.unknown if self.known is None else self.known))
        return {"tasks": tasks, "known": known, "last_life": self.last_life}

    def _statement(self, head: str, on: str, across: str, given: dict[str, Any]) -> Statement:
        """Of one queue from its head, or on from a place; or of several queues."""
        if self.others:
            rows = [{"queue": queue} for queue in self.queues]
            return Statement(across, {**given, "each": self.each}, rows)
        given["queue"] = self.queue
        if self.place is None:
            return Statement(head, given)
        return Statement(on, {**given, **self.place._asdict()})


def claim(wanted: Wanted) -> Op[list[Claim]]:
    """Take jobs, in the order in which they should start."""
    *_, rows = yield Together(wanted.statements())
    return in_order(rows)


def in_order(rows: Rows) -> list[Claim]:
    """RETURNING promises no order; the claim does."""
    return sorted(starmap(Claim, rows), key=lambda c: (-c.priority, c.run_at, c.id))


@dataclass(frozen=True, slots=True)
class Seen:
    """What an idle worker sees."""

    queues: list[str]  # with something ready, and not paused
    due: bool  # scheduled jobs wait to be made ready
    breakers: tuple[OpenBreaker, ...] = ()


def look() -> Op[Seen]:
    """Is there anything to claim? Reads a few index entries and locks nothing."""
    return _seen((yield Statement("look")))


def look_among(queues: Sequence[str]) -> Op[Seen]:
    """The same for named queues: the number of other queues does not matter."""
    return _seen((yield Statement("look_among", rows=[{"queue": queue} for queue in queues])))


def _seen(rows: Rows) -> Seen:
    queues = [queue for queue, task, *_ in rows if isinstance(queue, str) and task is None]
    due = any(queue is None for queue, *_ in rows)
    breakers = tuple(read_breaker(row) for row in rows if row[1] is not None)
    return Seen(queues, due, breakers)


def read_breaker(row: Row) -> OpenBreaker:
    queue, task, opening, kind, opened_at, probes, due = row
    circuit = Circuit(queue, task)
    return OpenBreaker(circuit, opening, kind, float(opened_at), int(probes), bool(due))


def promote(limit: int = 1000) -> Op[None]:
    """Make due jobs ready. A claim does this too; this is for workers that see only due ones."""
    yield Statement("promote_due", {"limit": limit})
