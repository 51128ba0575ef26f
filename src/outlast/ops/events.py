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
from .statement import Op, Rows, Statement, Together

PLACES = 1000  # given in one transaction
OF_BREAKERS = ("breaker-opened", "breaker-closed")


class Told(NamedTuple):
    """An event, and what never changes of the job that it is about: who follows by a filter reads
    the same whenever it is read."""

    place: int
    job: str | None
    attempt: int | None
    fence: int | None
    kind: str
    data: str | None  # JSON text
    at: float
    tenant: str | None
    queue: str | None
    task: str | None


class Page(NamedTuple):
    """Some events in order, how far they reach, and whether there may be more."""

    told: list[Told]
    reach: int
    more: bool


class Standing(NamedTuple):
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


def place(above: int = 0, limit: int = PLACES) -> Op[tuple[int, int]]:
    """Give places to events that have none, by a number above `above`: how many got one, and the
    highest number among them. It is one round trip, so that nobody who is stopped in the middle of
    it keeps the others waiting; and none but a look where there is nothing to do."""
    waiting: Rows = yield Statement("unplaced", {"above": above})
    if not waiting:
        return 0, above
    _, placed = yield Together(
        [Statement("hold_places"), Statement("place_events", {"above": above, "limit": limit})]
    )
    ((number, highest),) = placed
    return int(number), max(int(highest), above)


def last_place() -> Op[int]:
    """Where whoever wants only what is new begins. It never goes back, whatever is pruned: who has
    seen a higher one has seen it in a database that is not this one any more (a backup was put in
    its place)."""
    rows: Rows = yield Statement("last_place")
    return int(rows[0][0])


def page(after: int, tenant: str | None, limit: int) -> Op[Page]:
    """What comes next; of one tenant, or of all."""
    asked = {"after": after, "limit": limit}
    (reached,), rows = yield Together(
        [Statement("told_reach", asked), Statement("told_after", asked | {"tenant": tenant})]
    )
    reach, number = reached
    # More may have come between the two: that is for the next page.
    told = [_named(one) for one in map(Told._make, rows) if one.place <= reach]
    return Page(told, int(reach), number >= limit)


def _named(told: Told) -> Told:
    """An event of a breaker is of no job: its queue and task are in its data."""
    if told.kind not in OF_BREAKERS:
        return told
    said = lenient_json(told.data)
    names = said if isinstance(said, dict) else {}
    return told._replace(queue=names.get("queue"), task=names.get("task"))


def page_of_job(id: str, after: int, tenant: str | None, limit: int) -> Op[Page]:
    """The same of one job."""
    asked = {"id": id, "after": after, "tenant": tenant, "limit": limit}
    rows: Rows = yield Statement("told_of_job", asked)
    told = [Told._make(row) for row in rows]
    return Page(told, told[-1].place if told else after, len(told) >= limit)


def unplaced_of_job(id: str, tenant: str | None, limit: int) -> Op[list[Told]]:
    """What was told of a job just now: it comes after all that has a place, and has none yet. For
    who wants to see it and has no reason to write."""
    asked = {"id": id, "tenant": tenant, "limit": limit}
    rows: Rows = yield Statement("unplaced_of_job", asked)
    return [Told._make(row) for row in rows]


def standing(ids: Sequence[str], tenant: str | None = None) -> Op[dict[str, Standing]]:
    """How these jobs stand; one that is not there, or somebody else's, is left out."""
    if not ids:
        return {}
    rows: Rows = yield Statement("standing", {"ids": json.dumps(list(ids)), "tenant": tenant})
    return {row[0]: Standing._make(row) for row in rows}
