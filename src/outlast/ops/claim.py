"""A worker takes jobs, and in the same breath gives back what it has done."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import Any, NamedTuple

from ..model.job import Claim
from .statement import Op, Rows, Statement, Together

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

    def statements(self) -> list[Statement]:
        """Due jobs are made ready first, so no other process is on the path of a delay."""
        claim = self._claim()
        return [Statement("promote_due", {"limit": 1000}), claim] if self.promote else [claim]

    def _claim(self) -> Statement:
        asked: dict[str, Any] = {
            "worker": self.worker,
            "queue": self.queue,
            "limit": self.limit,
            "lease": self.lease,
        }
        if self.task is not None:
            reach = self.limit + REACH
            return Statement("claim_items", {**asked, "task": self.task, "reach": reach})
        unknown = json.dumps(sorted(self.unknown))
        asked |= {"unknown": unknown, "last_life": self.last_life}
        if self.place is None:
            return Statement("claim", asked)
        return Statement("claim_on", {**asked, **self.place._asdict()})


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


def look() -> Op[Seen]:
    """Is there anything to claim? Reads a few index entries and locks nothing."""
    return _seen((yield Statement("look")))


def look_among(queues: Sequence[str]) -> Op[Seen]:
    """The same for named queues: the number of other queues does not matter."""
    return _seen((yield Statement("look_among", rows=[{"queue": queue} for queue in queues])))


def _seen(rows: Rows) -> Seen:
    return Seen([queue for (queue,) in rows if isinstance(queue, str)], (None,) in rows)


def promote(limit: int = 1000) -> Op[None]:
    """Make due jobs ready. A claim does this too; this is for workers that see only due ones."""
    yield Statement("promote_due", {"limit": limit})
