"""Events for subscribers: in one order that is the same for every reader.

An event gets its number (`seq`) when it is written, and becomes visible when its transaction
commits. A reader that remembers the highest number misses transactions that commit late.

    writer A   takes 7 ─────────────────────────────────────── commits
    writer B           takes 8 ── commits
    reader                                 sees 8, asks for 9…            7 is never seen

So events are read by their *place*, which is assigned after the commit, by one process at a time.
Places become visible in order: a reader that has seen one can see every lower one, now and later.
No reader waits for an open transaction: its events get places after those committed before it. On
SQLite, which has one writer at a time, an event's number is its place.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from ..model.job import lenient_json
from ..model.lifecycle import FINAL
from . import archive
from .operation import Op, Pipeline, Rows, Statement

MAX_POSITIONS_PER_BATCH = 1000  # assigned in one transaction
BREAKER_KINDS = ("breaker-opened", "breaker-closed")
FLOW_KINDS = ("cancel-flow", "retry-flow")


class StoredEvent(NamedTuple):
    """An event with the immutable facts of its job, so that a filter gives the same result at any
    time."""

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
    flow: str | None = None


class EventPage(NamedTuple):
    """Some events in order, the position they reach, and whether there may be more."""

    events: list[StoredEvent]
    position: int
    more: bool


class JobStatus(NamedTuple):
    """The current state of a job."""

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
    """Assign places to events with a number above `above` that have none; returns how many, and
    their highest number. This takes one round trip, so that a process that is paused in the middle
    blocks no other; without such events it only reads."""
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
    """The position where a reader of only new events starts. It never decreases, whatever is
    pruned: a reader with a higher one read another database (a backup was restored since)."""
    rows: Rows = yield Statement("last_position")
    return int(rows[0][0])


def page(after: int, tenant: str | None, limit: int) -> Op[EventPage]:
    """The next events, of one tenant or of all."""
    asked = {"after": after, "limit": limit}
    (reached,), rows = yield Pipeline(
        [Statement("events_reach", asked), Statement("events_from", asked | {"tenant": tenant})]
    )
    reach, number = reached
    # Events that arrived between the two statements belong to the next page.
    events = [_with_names(one) for one in map(StoredEvent._make, rows) if one.position <= reach]
    return EventPage(events, int(reach), number >= limit)


def _with_names(event: StoredEvent) -> StoredEvent:
    """The event of a breaker or a flow belongs to no job: what it is about is in its data."""
    if event.kind not in BREAKER_KINDS and event.kind not in FLOW_KINDS:
        return event
    data = lenient_json(event.data)
    names = data if isinstance(data, dict) else {}
    if event.kind in FLOW_KINDS:
        return event._replace(flow=names.get("flow"))
    return event._replace(queue=names.get("queue"), task=names.get("task"))


def page_of_job(id: str, after: int, tenant: str | None, limit: int) -> Op[EventPage]:
    """The next events of one job."""
    asked = {"id": id, "after": after, "tenant": tenant, "limit": limit}
    rows: Rows = yield Statement("events_of_job", asked)
    events = [StoredEvent._make(row) for row in rows]
    return EventPage(events, events[-1].position if events else after, len(events) >= limit)


def unsequenced_of_job(id: str, tenant: str | None, limit: int) -> Op[list[StoredEvent]]:
    """A job's newest events, which have no place yet and come after all that have one. For readers
    that must not write."""
    asked = {"id": id, "tenant": tenant, "limit": limit}
    rows: Rows = yield Statement("unsequenced_of_job", asked)
    return [StoredEvent._make(row) for row in rows]


def job_status(ids: Sequence[str], tenant: str | None = None) -> Op[dict[str, JobStatus]]:
    """The states of these jobs; jobs that are missing, or of another tenant, are left out."""
    if not ids:
        return {}
    asked = Statement("job_status", {"ids": json.dumps(list(ids)), "tenant": tenant})
    rows = yield from archive.find(asked, "past_status", ids, tenant=tenant)
    return {row[0]: JobStatus._make(row) for row in rows}
