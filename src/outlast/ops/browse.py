"""What people look through, a page at a time: all that match, the dead by what they died of, what
is due next, flows. Like a search, a look reads so much and says where to go on.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime

from ..model.job import JOB_COLUMNS, Job, read_job
from ..model.lifecycle import State
from ..model.timestamps import to_datetime
from .access import ALL_JOBS, Access
from .audit import LOWEST_ID
from .flow_report import FlowState, Neighbour, neighbours, read_flows
from .operation import Op, Rows, Statement
from .report import HIGHEST_ID
from .search import WINDOW_JOBS, JobQuery, above, search

WINDOW_FLOWS = 1_000  # that one look reads
WINDOW_SCHEDULED = 1_000  # likewise: in the order of time, they lie all over the table
RUN_AT = JOB_COLUMNS.index("run_at")  # as the row has it: a moment in Python is coarser


@dataclass(frozen=True, slots=True)
class DeadGroup:
    """Dead jobs of one task that died of the same kind of error."""

    task: str
    error: str  # its type
    number: int
    first_at: datetime
    last_at: datetime
    last: str  # the newest job among them

    def merge(self, more: DeadGroup) -> DeadGroup:
        first, last = min(self.first_at, more.first_at), max(self.last_at, more.last_at)
        number = self.number + more.number
        return DeadGroup(self.task, self.error, number, first, last, max(self.last, more.last))


@dataclass(frozen=True, slots=True)
class DueCursor:
    """A place in the schedule: after this one."""

    run_at: float = 0.0
    id: str = LOWEST_ID


def count_window(
    query: JobQuery, reach: Access, before: str | None, window: int = WINDOW_JOBS
) -> Op[tuple[int, str | None]]:
    """How many of the next jobs below a cursor fit, and where to go on."""
    if query.state == State.RUNNING:
        running, _ = yield from search(query, reach, before, window)
        return len(running), running[-1].id if len(running) == window else None
    dead = query.state == State.DEAD
    given = {**query.params, **reach.params, "before": before or HIGHEST_ID}
    floor = yield from _floor("floor_of_dead" if dead else "floor_of_jobs", given["before"], window)
    given["floor"] = floor or LOWEST_ID
    if dead:
        counted: Rows = yield Statement("count_fitting_dead", given)
    else:
        counted = yield Statement("count_fitting", given | {"state": query.state})
    return int(counted[0][0]), floor and above(floor)


def dead_by_error(
    reach: Access, before: str | None = None, window: int = WINDOW_JOBS
) -> Op[tuple[list[DeadGroup], str | None]]:
    """The next dead jobs below a cursor by what they died of, and where to go on."""
    floor = yield from _floor("floor_of_dead", before or HIGHEST_ID, window)
    given = {**reach.params, "before": before or HIGHEST_ID, "floor": floor or LOWEST_ID}
    rows: Rows = yield Statement("dead_by_error", given)
    found = [
        DeadGroup(task, error, int(number), to_datetime(first), to_datetime(last), id)  # type: ignore[arg-type]
        for task, error, number, first, last, id in rows
    ]
    return found, floor and above(floor)


def due(
    reach: Access,
    after: DueCursor,
    limit: int,
    queue: str | None = None,
    window: int = WINDOW_SCHEDULED,
) -> Op[tuple[list[Job], DueCursor | None]]:
    """Scheduled jobs in the order in which they fall due, and where to go on."""
    cursor = {"run_at": after.run_at, "id": after.id}
    window = limit if reach == ALL_JOBS and queue is None else window
    params = {**cursor, **reach.params, "queue": queue, "limit": limit, "window": window}
    rows: Rows = yield Statement("due_next", params)
    jobs = [read_job(row) for row in rows]
    if len(jobs) == limit:
        return jobs, DueCursor(float(rows[-1][RUN_AT]), jobs[-1].id)
    far: Rows = yield Statement("due_far", {**cursor, "window": window - 1})
    return jobs, DueCursor(float(far[0][0]), far[0][1]) if far else None


def flows(
    reach: Access, before: str | None, limit: int, window: int = WINDOW_FLOWS
) -> Op[tuple[list[FlowState], str | None]]:
    """Flows of which all is in reach, newest first, and where to go on."""
    asked = {"before": before or HIGHEST_ID, "window": window, "limit": limit, **reach.params}
    rows: Rows = yield Statement("flows_in_reach", asked)
    found = yield from read_flows(rows)
    if len(found) == limit:
        return found, found[-1].id
    floor = yield from _floor("floor_of_flows", before or HIGHEST_ID, window - 1)
    return found, floor


def neighbours_in_access(
    id: str, reach: Access, limit: int
) -> Op[tuple[list[Neighbour], list[Neighbour]]]:
    """The first few jobs before and after one, as far as they are in reach."""
    before, after = yield from neighbours(id, limit)
    ids = json.dumps(sorted({one.id for one in (*before, *after)}))
    rows: Rows = yield Statement("jobs_in_reach", {"ids": ids, **reach.params})
    seen = {id for (id,) in rows}
    return [one for one in before if one.id in seen], [one for one in after if one.id in seen]


def _floor(statement: str, before: str, window: int) -> Op[str | None]:
    rows: Rows = yield Statement(statement, {"before": before, "window": window})
    return rows[0][0] if rows else None
