"""Lists of jobs in the order of one of their times, with bounded cost however many jobs there are.

An order is available where an index has it, or where the jobs are few:

    enqueued   in any state: ids begin with their time
    due        scheduled jobs
    ended      succeeded, cancelled or dead jobs; the archive has no such index
    started    running jobs: never more than all workers can hold, so they are sorted here

As in `search`, one statement reads a bounded window behind a cursor: a page may be short although
more jobs match. A cursor is a position, and not a number of rows: jobs that come and go neither
more jobs match. A cursor is a position, not a number of rows: jobs that appear or disappear neither
repeat nor hide others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self
from uuid import UUID

from ..model.job import Job, read_args, read_job
from ..model.lifecycle import State
from . import archive
from .access import ALL_JOBS, Access
from .audit import LOWEST_ID
from .operation import Op, Pipeline, Rows, Statement
from .report import HIGHEST_ID
from .search import ALL, JobQuery, search

WINDOW_ORDERED = 1_000  # jobs read by one statement: in the order of time, they are scattered
MAX_RUNNING = 5_000  # running jobs that are sorted
MAX_ARGUMENTS = 10_000  # characters of arguments that are read for a list

_ENDED = ("ended_first", "ended_last")
_IN_INDEX = {  # by column and state: the statements, ascending and descending
    ("due", State.SCHEDULED): ("due_first", "due_last"),
    ("ended", State.SUCCEEDED): _ENDED,
    ("ended", State.CANCELLED): _ENDED,
    ("ended", State.DEAD): ("died_first", "died_last"),
}
_OLDEST = {
    State.DEAD: "enqueued_first_dead",
    State.WAITING: "enqueued_first_waiting",
}
_LATEST_S = 221_845_392_000.0  # seconds since 1970, to the year 9000


@dataclass(frozen=True, slots=True)
class JobOrder:
    """An order of a list; by default the newest job is first."""

    column: str = "enqueued"  # enqueued, due, ended or started
    descending: bool = True

    @classmethod
    def parse(cls, text: str) -> Self:
        """`ended` is ascending, `-ended` descending; the empty text is the default."""
        return cls(text.removeprefix("-"), text.startswith("-")) if text else cls()

    def __str__(self) -> str:
        return f"{'-' if self.descending else ''}{self.column}"

    def suits(self, state: str | None) -> bool:
        return self.column in sortable_columns(state)


NEWEST = JobOrder()


def sortable_columns(state: str | None) -> tuple[str, ...]:
    """The columns by which jobs in a state, or in any, can be sorted."""
    if state == State.RUNNING:
        return ("enqueued", "started")
    return ("enqueued", *(column for column, of in _IN_INDEX if of == state))


@dataclass(frozen=True, slots=True)
class ListCursor:
    """A position in an ordered list: after this job."""

    at: float
    id: str

    PATTERN = r"([0-9]{1,12}\.[0-9]{1,20})_([0-9a-f-]{36})"

    def __str__(self) -> str:
        return f"{self.at!r}_{self.id}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError for any other text."""
        match = re.fullmatch(cls.PATTERN, text)
        if match is None or float(match[1]) > _LATEST_S:
            raise ValueError("no cursor of a list")
        return cls(float(match[1]), str(UUID(match[2])))


Page = tuple[list[Job], ListCursor | None]


def ordered_jobs(
    query: JobQuery,
    reach: Access,
    order: JobOrder,
    after: ListCursor | None,
    limit: int,
    window: int = WINDOW_ORDERED,
) -> Op[Page]:
    """Some matching jobs in an order that suits their state, and where to continue: None at the
    end. Arguments and results are left out."""
    if query.state == State.RUNNING:
        return (yield from _running(query, reach, order, after, limit))
    if order == NEWEST:
        before = None if after is None else after.id
        found, further = yield from search(query, reach, before, limit)
        return found, None if further is None else ListCursor(0.0, further)
    only_limit = query == ALL and reach == ALL_JOBS
    rows = yield from _window(query, reach, order, after, limit if only_limit else window)
    fitting = [(id, at) for id, at, fits in rows.rows if fits][:limit]
    jobs = {job.id: job for job in (yield from selected([id for id, _ in fitting], reach))}
    if len(fitting) == limit:
        last: ListCursor | None = ListCursor(float(fitting[-1][1]), fitting[-1][0])
    else:
        last = rows.last
    return [jobs[id] for id, _ in fitting if id in jobs], last


@dataclass(frozen=True, slots=True)
class _Window:
    rows: Rows
    last: ListCursor | None  # the last position that was read; None: nothing follows


def _window(
    query: JobQuery, reach: Access, order: JobOrder, after: ListCursor | None, window: int
) -> Op[_Window]:
    start = after or (
        ListCursor(_LATEST_S, HIGHEST_ID) if order.descending else ListCursor(0.0, LOWEST_ID)
    )
    given = {**query.params, **reach.params, "state": query.state, "window": window,
             "at": start.at, "id": start.id}  # fmt: skip
    if order.column != "enqueued":
        ascending, descending = _IN_INDEX[order.column, State(str(query.state))]
        rows: Rows = yield Statement(descending if order.descending else ascending, given)
        return _Window(rows, _end_of(rows) if len(rows) == window else None)
    current = Statement(_OLDEST.get(query.state, "enqueued_first"), given)  # type: ignore[call-overload]
    if not archive.holds(query.state):
        rows = yield current
        return _Window(rows, _end_of(rows) if len(rows) == window else None)
    both: list[Rows] = yield Pipeline([current, Statement("enqueued_first_past", given)])
    return _merged(both, window)


def _merged(parts: Sequence[Rows], window: int) -> _Window:
    """Pure: windows of two tables as one. It ends where the first of them ends."""
    ends = [rows[-1][0] for rows in parts if len(rows) == window]
    # A job that moves between the two statements is read twice.
    found = {row[0]: row for rows in parts for row in rows if not ends or row[0] <= min(ends)}
    rows = [found[id] for id in sorted(found)]
    return _Window(rows, _end_of(rows) if ends else None)


def _end_of(rows: Rows) -> ListCursor:
    return ListCursor(float(rows[-1][1]), rows[-1][0])


def _running(
    query: JobQuery, reach: Access, order: JobOrder, after: ListCursor | None, limit: int
) -> Op[Page]:
    found, _ = yield from search(query, reach, None, MAX_RUNNING)
    key = _sort_key(order)
    found.sort(key=key, reverse=order.descending)
    if after is not None:
        position = (after.at, after.id)
        found = [job for job in found if (key(job) < position) is order.descending]
        found = [job for job in found if key(job) != position]
    page = found[:limit]
    last = ListCursor(*key(page[-1])) if len(found) > limit else None
    return page, last


def _sort_key(order: JobOrder) -> Callable[[Job], tuple[float, str]]:
    if order.column == "enqueued":
        return lambda job: (0.0, job.id)
    epoch = datetime.fromtimestamp(0, UTC)
    return lambda job: ((job.started_at or epoch).timestamp(), job.id)


def selected(ids: Sequence[str], reach: Access) -> Op[list[Job]]:
    """The jobs of these ids that exist and are within the caller's access, in this order.
    Arguments and results are left out."""
    if not ids:
        return []
    asked = Statement("selected_jobs", {"ids": json.dumps(sorted(ids)), **reach.params})
    rows = yield from archive.find(asked, "selected_past", ids, **reach.params)
    found = {job.id: job for job in map(read_job, rows)}
    return [found[id] for id in ids if id in found]


@dataclass(frozen=True, slots=True)
class LongArguments:
    """Arguments that are too long for a list."""

    characters: int


def add_arguments(jobs: Sequence[Job]) -> Op[None]:
    """Read the arguments of listed jobs, with secrets masked. Long ones are replaced by their
    length."""
    if not jobs:
        return
    ids = [job.id for job in jobs]
    asked = Statement("listed_arguments", {"ids": json.dumps(ids), "longest": MAX_ARGUMENTS})
    rows = yield from archive.find(asked, "listed_arguments_past", ids, longest=MAX_ARGUMENTS)
    texts = {id: (text, length) for id, text, length in rows}
    for job in jobs:
        text, length = texts.get(job.id, (None, None))
        job.args = LongArguments(int(length)) if text is None and length else read_args(text)
