"""What people look through, a page at a time: all that match, the dead by what they died of, what
is due next, flows. Like a search, a look reads so much and says where to go on.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime

from ..model.job import JOB_COLUMNS, Job, read_job
from ..model.lifecycle import State
from ..model.moments import moment
from .audit import FIRST
from .flow_report import FlowState, Neighbour, neighbours, read_flows
from .reach import EVERYTHING, Reach
from .report import BEYOND
from .search import WINDOW, Sought, above, search
from .statement import Op, Rows, Statement

FLOWS = 1_000  # that one look reads
SCHEDULED = 1_000  # likewise: in the order of time, they lie all over the table
RUN_AT = JOB_COLUMNS.index("run_at")  # as the row has it: a moment in Python is coarser


@dataclass(frozen=True, slots=True)
class Deaths:
    """Dead jobs of one task that died of the same kind of error."""

    task: str
    error: str  # its type
    number: int
    first_at: datetime
    last_at: datetime
    last: str  # the newest job among them

    def and_also(self, more: Deaths) -> Deaths:
        first, last = min(self.first_at, more.first_at), max(self.last_at, more.last_at)
        number = self.number + more.number
        return Deaths(self.task, self.error, number, first, last, max(self.last, more.last))


@dataclass(frozen=True, slots=True)
class Due:
    """A place in the schedule: after this one."""

    run_at: float = 0.0
    id: str = FIRST


def count_some(
    sought: Sought, reach: Reach, before: str | None, window: int = WINDOW
) -> Op[tuple[int, str | None]]:
    """How many of the next jobs below a cursor fit, and where to go on."""
    if sought.state == State.RUNNING:
        running, _ = yield from search(sought, reach, before, window)
        return len(running), running[-1].id if len(running) == window else None
    dead = sought.state == State.DEAD
    given = {**sought.params, **reach.params, "before": before or BEYOND}
    floor = yield from _floor("floor_of_dead" if dead else "floor_of_jobs", given["before"], window)
    given["floor"] = floor or FIRST
    if dead:
        counted: Rows = yield Statement("count_fitting_dead", given)
    else:
        counted = yield Statement("count_fitting", given | {"state": sought.state})
    return int(counted[0][0]), floor and above(floor)


def dead_by_error(
    reach: Reach, before: str | None = None, window: int = WINDOW
) -> Op[tuple[list[Deaths], str | None]]:
    """The next dead jobs below a cursor by what they died of, and where to go on."""
    floor = yield from _floor("floor_of_dead", before or BEYOND, window)
    given = {**reach.params, "before": before or BEYOND, "floor": floor or FIRST}
    rows: Rows = yield Statement("dead_by_error", given)
    found = [
        Deaths(task, error, int(number), moment(first), moment(last), id)  # type: ignore[arg-type]
        for task, error, number, first, last, id in rows
    ]
    return found, floor and above(floor)


def due(
    reach: Reach, after: Due, limit: int, queue: str | None = None, window: int = SCHEDULED
) -> Op[tuple[list[Job], Due | None]]:
    """Scheduled jobs in the order in which they fall due, and where to go on."""
    place = {"run_at": after.run_at, "id": after.id}
    window = limit if reach == EVERYTHING and queue is None else window
    asked = {**place, **reach.params, "queue": queue, "limit": limit, "window": window}
    rows: Rows = yield Statement("due_next", asked)
    jobs = [read_job(row) for row in rows]
    if len(jobs) == limit:
        return jobs, Due(float(rows[-1][RUN_AT]), jobs[-1].id)
    far: Rows = yield Statement("due_far", {**place, "window": window - 1})
    return jobs, Due(float(far[0][0]), far[0][1]) if far else None


def flows(
    reach: Reach, before: str | None, limit: int, window: int = FLOWS
) -> Op[tuple[list[FlowState], str | None]]:
    """Flows of which all is in reach, newest first, and where to go on."""
    asked = {"before": before or BEYOND, "window": window, "limit": limit, **reach.params}
    rows: Rows = yield Statement("flows_in_reach", asked)
    found = yield from read_flows(rows)
    if len(found) == limit:
        return found, found[-1].id
    floor = yield from _floor("floor_of_flows", before or BEYOND, window - 1)
    return found, floor


def near(id: str, reach: Reach, limit: int) -> Op[tuple[list[Neighbour], list[Neighbour]]]:
    """The first few jobs before and after one, as far as they are in reach."""
    before, after = yield from neighbours(id, limit)
    ids = json.dumps(sorted({one.id for one in (*before, *after)}))
    rows: Rows = yield Statement("jobs_in_reach", {"ids": ids, **reach.params})
    seen = {id for (id,) in rows}
    return [one for one in before if one.id in seen], [one for one in after if one.id in seen]


def _floor(statement: str, before: str, window: int) -> Op[str | None]:
    rows: Rows = yield Statement(statement, {"before": before, "window": window})
    return rows[0][0] if rows else None
