"""Events for those who follow along: in one order, that is the same for every reader.

A number (`seq`) is taken when an event is written, and seen when its transaction commits: who reads
by number and remembers the highest misses whoever commits late.

    writer A   takes 7 ─────────────────────────────────────── commits
    writer B           takes 8 ── commits
    reader                                 sees 8, asks for 9…            7 is never seen

So events are read by their *place*, which is given after the commit, by one at a time. Places
become visible in their own order: who has seen one can see every lower one, now and for ever.
Nobody waits for an open transaction, neither somebody else's nor one of ours: what it wrote comes
after what was committed before it. On SQLite, where one writes at a time, an event's number is its
place.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from ..model.job import lenient_json
from ..model.lifecycle import FINAL
from .operation import Op, Pipeline, Rows, Statement

MAX_POSITIONS_PER_BATCH = 1000  # given in one transaction
OF_BREAKERS = ("breaker-opened", "breaker-closed")


class StoredEvent(NamedTuple):
    """An event, and what never changes of the job that it is about: who follows by a filter reads
    the same whenever it is read."""

    position: int
    job: str | None
    attempt: int | None
    fence: int | None
    kind: str
    data: str | None  # JSON text
    at: float
    tenant: str | None
    queue: str | None
    task: str | None


class EventPage(NamedTuple):
    """Some events in order, how far they reach, and whether there may be more."""

    events: list[StoredEvent]
    position: int
    more: bool


class JobStatus(NamedTuple):
    """How a job stands."""

    id: str
    state: str
    attempt: int
    fence: int
    worker: str | None
    tenant: str
    queue: str
    task: str
    error: str | None  # JSON text
    finished_at: float | None

    @property
    def final(self) -> bool:
        return self.state in FINAL


def assign_positions(above: int = 0, limit: int = MAX_POSITIONS_PER_BATCH) -> Op[tuple[int, int]]:
    """Give places to events that have none, by a number above `above`: how many got one, and the
    highest number among them. It is one round trip, so that nobody who is stopped in the middle of
    it keeps the others waiting; and none but a look where there is nothing to do."""
    waiting: Rows = yield Statement("unsequenced", {"above": above})
    if not waiting:
        return 0, above
    _, assigned = yield Pipeline(
        [
            Statement("lock_positions"),
            Statement("assign_positions", {"above": above, "limit": limit}),
        ]
    )
    ((number, highest),) = assigned
    return int(number), max(int(highest), above)


def last_position() -> Op[int]:
    """Where whoever wants only what is new begins. It never goes back, whatever is pruned: who has
    seen a higher one has seen it in a database that is not this one any more (a backup was put in
    its place)."""
    rows: Rows = yield Statement("last_position")
    return int(rows[0][0])


def page(after: int, tenant: str | None, limit: int) -> Op[EventPage]:
    """What comes next; of one tenant, or of all."""
    asked = {"after": after, "limit": limit}
    (reached,), rows = yield Pipeline(
        [Statement("events_reach", asked), Statement("events_from", asked | {"tenant": tenant})]
    )
    reach, number = reached
    # More may have come between the two: that is for the next page.
    events = [
        _with_breaker_names(one) for one in map(StoredEvent._make, rows) if one.position <= reach
    ]
    return EventPage(events, int(reach), number >= limit)


def _with_breaker_names(event: StoredEvent) -> StoredEvent:
    """An event of a breaker is of no job: its queue and task are in its data."""
    if event.kind not in OF_BREAKERS:
        return event
    data = lenient_json(event.data)
    names = data if isinstance(data, dict) else {}
    return event._replace(queue=names.get("queue"), task=names.get("task"))


def page_of_job(id: str, after: int, tenant: str | None, limit: int) -> Op[EventPage]:
    """The same of one job."""
    asked = {"id": id, "after": after, "tenant": tenant, "limit": limit}
    rows: Rows = yield Statement("events_of_job", asked)
    events = [StoredEvent._make(row) for row in rows]
    return EventPage(events, events[-1].position if events else after, len(events) >= limit)


def unsequenced_of_job(id: str, tenant: str | None, limit: int) -> Op[list[StoredEvent]]:
    """What was told of a job just now: it comes after all that has a place, and has none yet. For
    who wants to see it and has no reason to write."""
    asked = {"id": id, "tenant": tenant, "limit": limit}
    rows: Rows = yield Statement("unsequenced_of_job", asked)
    return [StoredEvent._make(row) for row in rows]


def job_status(ids: Sequence[str], tenant: str | None = None) -> Op[dict[str, JobStatus]]:
    """How these jobs stand; one that is not there, or somebody else's, is left out."""
    if not ids:
        return {}
    rows: Rows = yield Statement("job_status", {"ids": json.dumps(list(ids)), "tenant": tenant})
    return {row[0]: JobStatus._make(row) for row in rows}
