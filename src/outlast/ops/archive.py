"""The archive: succeeded jobs that nothing else refers to, moved out of the table of jobs.

    job ──move (duty `archive`)──▶ past_YYYYMMDD ──detach, drop──▶ gone
     ▲                                 │
     └──restore (erase, `after=`) ─────┘

A job is in one of the two tables. Readers look in `job` first, then here; an operation that changes
a job, or links another one to it, moves it back first. SQLite has no archive: its statements return
nothing there.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from ..model.errors import StoreError
from ..model.lifecycle import State
from .access import ALL_JOBS, Access
from .operation import BEGIN, Op, Pipeline, Rows, Statement

DAY_S = 86400
ALL_TIME = (0.0, 221_845_392_000.0)  # seconds since 1970, to the year 9000
LOWEST_ID = "00000000-0000-0000-0000-000000000000"


def partition_name(day: int) -> str:
    """The table of the jobs that ended on a day; days count from 1970, in UTC."""
    return f"past_{datetime.fromtimestamp(day * DAY_S, UTC):%Y%m%d}"


def partition_day(name: str) -> int:
    """The day of a table of that name."""
    return int(datetime.strptime(name, "past_%Y%m%d").replace(tzinfo=UTC).timestamp()) // DAY_S


@dataclass(frozen=True, slots=True)
class ArchiveCursor:
    """A position among ended jobs: after this one."""

    ended_at: float = 0.0
    id: str = LOWEST_ID


@dataclass(frozen=True, slots=True)
class ArchivePage:
    """Ended jobs in the order of their ends: those that may move, and where to continue."""

    movable: dict[str, int]  # ids, and the days since 1970 on which these ended
    read: int
    next: ArchiveCursor


def look_up(statement: str, ids: Collection[str], **params: object) -> Op[Rows]:
    """The rows of some archived jobs; the first column is the id. Most are found near the day on
    which they were created, so few partitions are searched."""
    found: Rows = []
    missing = set(ids)
    for low, high in _spans(ids):
        if not missing:
            break
        given = {"ids": json.dumps(sorted(missing)), "low": low, "high": high, **params}
        rows: Rows = yield Statement(statement, given)
        found += rows
        missing.difference_update(str(row[0]) for row in rows)
    return found


def find(asked: Statement, past: str, ids: Collection[str], **params: object) -> Op[Rows]:
    """The rows of some jobs: those that `asked` finds in the table of jobs, and the archived ones;
    the first column is the id. A job that is moved back between the two statements is looked up
    once more."""
    rows: Rows = yield asked
    if not (missing := _missing(ids, rows)):
        return rows
    rows = [*rows, *(yield from look_up(past, missing, **params))]
    if not (missing := _missing(ids, rows)):
        return rows
    again: Rows = yield asked
    return [*rows, *(row for row in again if row[0] in missing)]


def _missing(ids: Collection[str], rows: Rows) -> set[str]:
    return set(ids).difference(row[0] for row in rows)


def _spans(ids: Collection[str]) -> Iterator[tuple[float, float]]:
    """Periods in which jobs of these ids may have ended, the likeliest first. Clients create the
    ids, their clocks may be wrong, and a job may run long after its creation."""
    made = [int(UUID(id).hex[:12], 16) / 1000 for id in ids if UUID(id).version == 7]
    if made and len(made) == len(ids):
        yield max(0.0, min(made) - DAY_S), min(ALL_TIME[1], max(made) + 2 * DAY_S)
    yield ALL_TIME


def holds(state: str | None) -> bool:
    """Whether jobs in this state, or in any, may be in the archive."""
    return state is None or state == State.SUCCEEDED


def with_past(asked: Statement, past: Statement, state: str | None) -> Op[Rows]:
    """The rows of both tables, newest first, each job once; the first column is the id."""
    rows: Rows
    older: Rows = []
    if holds(state):
        rows, older = yield Pipeline([asked, past])
    else:
        rows = yield asked
    if not older:
        return rows
    # A job that moves between the two statements is read twice.
    found = {row[0]: row for row in (*older, *rows)}
    return [found[id] for id in sorted(found, reverse=True)]


def count(queue: str | None = None, task: str | None = None, tenant: str | None = None) -> Op[int]:
    """The number of archived jobs, matching or all."""
    rows: Rows = yield Statement("count_past", {"queue": queue, "task": task, "tenant": tenant})
    return int(rows[0][0]) if rows else 0


def archivable(after: float, keep: float, start: ArchiveCursor, limit: int) -> Op[ArchivePage]:
    """A page of jobs that ended at least `after` seconds ago; `keep` is the default retention."""
    given = {"after": after, "keep": keep, "limit": limit}
    rows: Rows = yield Statement(
        "ended_for_archive", {**given, "since": start.ended_at, "id": start.id}
    )
    chosen = {id: int(ended // DAY_S) for id, ended, movable in rows if movable}
    end = ArchiveCursor(float(rows[-1][1]), rows[-1][0]) if rows else start
    return ArchivePage(chosen, len(rows), end)


def move(ids: Collection[str], after: float, keep: float) -> Op[int]:
    """Move the jobs that still qualify to the archive; returns their number. It is one statement:
    if the process dies, each job is in exactly one table. Rows are locked by the statement before
    it, so that it sees what other transactions have committed about them."""
    yield BEGIN
    held: Rows = yield Statement("hold_for_archive", {"ids": json.dumps(sorted(ids))})
    given = {"ids": json.dumps([id for (id,) in held]), "after": after, "keep": keep}
    rows: Rows = yield Statement("move_to_past", given)
    for gone, kept in rows:
        if gone != kept:  # rolls back
            raise StoreError(f"the archive took {kept} of {gone} jobs: nothing was moved")
        return int(gone)
    return 0


def restore(ids: Collection[str], reach: Access = ALL_JOBS) -> Op[set[str]]:
    """Move archived jobs back, in the caller's transaction; returns the ids of those that are now
    in the table of jobs, locked. The second of two concurrent calls finds the jobs of the first
    there."""
    if not ids:
        return set()
    rows = yield from look_up("restore_from_past", ids, **reach.params)
    back = {id for (id,) in rows}
    if missing := set(ids) - back:
        held: Rows = yield Statement("hold_prerequisites", {"ids": json.dumps(sorted(missing))})
        back.update(id for id, _ in held)
    return back


def remove(
    ids: Collection[str], older: float, state: str | None, reach: Access = ALL_JOBS
) -> Op[Rows]:
    """Remove the archived jobs that ended at least `older` seconds ago; no other rows belong to
    them."""
    if not ids:
        return []
    return (yield from look_up("purge_past", ids, older=older, state=state, **reach.params))


def short_queues(keep: float, limit: int) -> Op[list[tuple[str, float, float]]]:
    """Queues with a shorter retention and archived jobs that are due: each with a day, and its
    retention in seconds."""
    rows: Rows = yield Statement("past_of_short_queues", {"keep": keep, "limit": limit})
    return [(queue, float(day), float(kept)) for queue, day, kept in rows]


def prune_day(queue: str, day: float, keep: float, limit: int) -> Op[int]:
    """Remove a batch of a queue's archived jobs of one day that ended `keep` seconds ago."""
    given = {"queue": queue, "low": day, "high": day + DAY_S, "older": keep, "limit": limit}
    rows: Rows = yield Statement("prune_past_queue", given)
    return len(rows)


@dataclass(frozen=True, slots=True)
class ArchiveState:
    """The contents of the archive."""

    jobs: int = 0
    oldest: float = 0.0  # seconds since its first day began
    partitions: int = 0
    detached: tuple[str, ...] = ()  # partitions not dropped yet


ARCHIVE_STATE = (Statement("past_totals"), Statement("past_partitions"))


def archive_state() -> Op[ArchiveState]:
    return archive_state_of(*(yield Pipeline(ARCHIVE_STATE)))


def archive_state_of(totals: Rows, partitions: Rows) -> ArchiveState:
    """From the rows of ARCHIVE_STATE."""
    number, oldest = totals[0] if totals else (0, None)
    return ArchiveState(
        int(number),
        float(oldest or 0.0),
        sum(1 for _, attached in partitions if attached),
        tuple(name for name, attached in partitions if not attached),
    )


def expired_days(keep: float) -> Op[list[str]]:
    """The day tables in which every job ended at least `keep` seconds ago, including those that
    are detached but not dropped yet."""
    now = yield from clock()
    rows: Rows = yield Statement("past_partitions")
    return [name for name, _ in rows if (partition_day(name) + 1) * DAY_S + keep <= now]


def clock() -> Op[float]:
    rows: Rows = yield Statement("clock")
    return float(rows[0][0])
