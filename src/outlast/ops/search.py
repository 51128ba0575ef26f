"""Search for jobs within a caller's access, with bounded cost however many jobs there are.

A filter that matches few jobs would make the database read everything. So a search reads a bounded
window of jobs below a cursor and returns where to continue: a page may be short or empty although
more jobs match.

Dead and waiting jobs have indexes by id and are searched separately; running ones are few.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from ..model.errors import FlowNotFound, JobNotFound
from ..model.job import JOB_COLUMNS, Job, read_job
from ..model.lifecycle import State
from ..model.timestamps import age, to_datetime
from ..model.unreadable import read_state
from . import archive
from .access import ALL_JOBS, Access
from .audit import LOWEST_ID
from .breaker_report import breakers
from .flow_report import FlowState, Neighbour, neighbours, read_flows
from .operation import Op, Rows, Statement
from .report import HIGHEST_ID, Queue, queue_settings

WINDOW_JOBS = 5_000  # jobs read by one statement
WINDOW_FLOWS = 1_000  # flows read by one statement
WINDOW_SCHEDULED = 1_000  # fewer: in the order of time, they are scattered over the table
RUN_AT = JOB_COLUMNS.index("run_at")  # as stored: a Python datetime is coarser
MAX_KINDS = 50_000  # kinds of jobs in a count

_INDEXED_STATES = {State.DEAD: ("search_dead", "floor_of_dead"),
          State.WAITING: ("search_waiting", "floor_of_waiting")}  # fmt: skip


@dataclass(frozen=True, slots=True)
class JobQuery:
    """A filter of jobs; None matches all."""

    state: str | None = None
    queue: str | None = None
    task: str | None = None
    text: str | None = None  # part of its key, id or arguments
    error: str | None = None  # the type of its last error

    @property
    def params(self) -> dict[str, object]:
        """Parameters of the fragment `job_fits`."""
        return {
            "queue": self.queue,
            "task": self.task,
            "text": None if self.text is None else like_pattern(self.text),
            "error": self.error,
        }


def like_pattern(text: str) -> str:
    """The pattern of LIKE … ESCAPE '!' for lower-case text that contains this one."""
    for special in "!%_":
        text = text.replace(special, f"!{special}")
    return f"%{text.lower()}%"


ALL = JobQuery()


@dataclass(frozen=True, slots=True)
class KindCount:
    """The number of jobs of one kind."""

    tenant: str
    queue: str
    task: str
    state: str
    number: int
    oldest: float  # age of the oldest of them; seconds


def search(
    query: JobQuery, reach: Access, before: str | None, limit: int, window: int = WINDOW_JOBS
) -> Op[tuple[list[Job], str | None]]:
    """Some matching jobs, newest first, and where to continue: None at the end. Arguments and
    results are left out."""
    given = {**query.params, **reach.params, "before": before or HIGHEST_ID, "limit": limit}
    if query.state == State.RUNNING:
        running: Rows = yield Statement("search_running", given | {"floor": LOWEST_ID})
        return _page(running, limit, None)
    statement, bottom = _INDEXED_STATES.get(query.state, ("search_jobs", "floor_of_jobs"))  # type: ignore[call-overload]
    among = replace(query, state=None) if statement != "search_jobs" else query
    if statement == "search_jobs":
        given["state"] = query.state
    floor = None
    if among != ALL or reach != ALL_JOBS:  # otherwise every job matches, and no window is needed
        floor = yield from _floor(bottom, given["before"], window, archive.holds(query.state))
    given["floor"] = floor or LOWEST_ID
    past = Statement("search_past", given)
    rows = yield from archive.with_past(Statement(statement, given), past, query.state)
    return _page(rows[:limit], limit, floor)


def _page(rows: Rows, limit: int, floor: str | None) -> tuple[list[Job], str | None]:
    jobs = [read_job(row) for row in rows]
    if len(jobs) == limit:
        return jobs, jobs[-1].id
    # The floor itself was not read: continue right above it.
    return jobs, floor and above(floor)


def above(id: str) -> str:
    """The next id: as a cursor, it includes the given one."""
    return str(UUID(int=UUID(id).int + 1))


def count_by_kind(limit: int = MAX_KINDS) -> Op[list[KindCount]]:
    """All jobs, counted by kind. This reads all of them: call it rarely."""
    rows: Rows = yield Statement("count_by_kind", {"limit": limit})
    past: Rows = yield Statement("count_past_by_kind", {"limit": limit})
    kinds: dict[tuple[str, ...], KindCount] = {}
    for tenant, queue, task, state, number, oldest in [*rows, *past]:
        kind = kinds.get((tenant, queue, task, state))
        more = (kind.number, kind.oldest) if kind else (0, 0.0)
        kinds[tenant, queue, task, state] = KindCount(
            tenant, queue, task, state, int(number) + more[0], max(age(oldest), more[1])
        )
    return sorted(kinds.values(), key=lambda kind: -kind.number)[:limit]


def all_queues() -> Op[list[Queue]]:
    """The queues that have a job or a setting, with their jobs counted by state."""
    found = yield from queue_settings()
    for kind in (yield from count_by_kind()):
        queue = found.setdefault(kind.queue, Queue(kind.queue))
        state = str(read_state(kind.state))
        queue.counts[state] = queue.counts.get(state, 0) + kind.number
        if state == State.READY:
            queue.oldest = max(queue.oldest or 0.0, kind.oldest)
    for breaker in (yield from breakers()):
        found.setdefault(breaker.queue, Queue(breaker.queue)).breakers.append(breaker)
    for queue in found.values():
        queue.counts = {str(state): 0 for state in State} | queue.counts
    return [found[name] for name in sorted(found)]


def all_in_reach(ids: Collection[str], reach: Access) -> Op[None]:
    """Raise for a job that is outside this caller's access."""
    asked = Statement("jobs_in_reach", {"ids": json.dumps(sorted(ids)), **reach.params})
    rows = yield from archive.find(asked, "past_in_reach", ids, **reach.params)
    if missing := set(ids) - {id for (id,) in rows}:
        raise JobNotFound(job=min(missing))


def flow_in_reach(flow: str, reach: Access) -> Op[None]:
    """Raise unless all jobs of a flow are within the caller's access."""
    rows: Rows = yield Statement("flow_reach", {"id": flow, **reach.params})
    inside, outside = rows[0]
    if not inside or outside:
        raise FlowNotFound(flow=flow)


@dataclass(frozen=True, slots=True)
class DeadGroup:
    """Dead jobs of one task with the same type of error."""

    task: str
    error: str  # the error's type
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
    """A position in the schedule: after this job."""

    run_at: float = 0.0
    id: str = LOWEST_ID


def count_window(
    query: JobQuery, reach: Access, before: str | None, window: int = WINDOW_JOBS
) -> Op[tuple[int, str | None]]:
    """The number of matching jobs in the next window below a cursor, and where to continue."""
    if query.state == State.RUNNING:
        running, _ = yield from search(query, reach, before, window)
        return len(running), running[-1].id if len(running) == window else None
    dead = query.state == State.DEAD
    given = {**query.params, **reach.params, "before": before or HIGHEST_ID}
    bottom = "floor_of_dead" if dead else "floor_of_jobs"
    floor = yield from _floor(bottom, given["before"], window, archive.holds(query.state))
    given["floor"] = floor or LOWEST_ID
    if dead:
        counted: Rows = yield Statement("count_fitting_dead", given)
    else:
        counted = yield Statement("count_fitting", given | {"state": query.state})
    past: Rows = []
    if archive.holds(query.state):
        past = yield Statement("count_fitting_past", given)
    return sum(int(number) for (number,) in (*counted, *past)), floor and above(floor)


def dead_by_error(
    reach: Access, before: str | None = None, window: int = WINDOW_JOBS
) -> Op[tuple[list[DeadGroup], str | None]]:
    """The next dead jobs below a cursor, grouped by error, and where to continue."""
    floor = yield from _floor("floor_of_dead", before or HIGHEST_ID, window, archived=False)
    given = {**reach.params, "before": before or HIGHEST_ID, "floor": floor or LOWEST_ID}
    rows: Rows = yield Statement("dead_by_error", given)
    found = [
        DeadGroup(task, error, int(number), to_datetime(first), to_datetime(last), id)
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
    """Scheduled jobs in the order of their due time, and where to continue."""
    cursor = {"run_at": after.run_at, "id": after.id}
    window = limit if reach == ALL_JOBS and queue is None else window
    params = {**cursor, **reach.params, "queue": queue, "limit": limit, "window": window}
    rows: Rows = yield Statement("due_next", params)
    jobs = [read_job(row) for row in rows]
    if len(jobs) == limit:
        return jobs, DueCursor(float(rows[-1][RUN_AT]), jobs[-1].id)
    far: Rows = yield Statement("due_far", {**cursor, "window": window - 1})
    return jobs, DueCursor(float(far[0][0]), far[0][1]) if far else None


def search_flows(
    reach: Access, before: str | None, limit: int, window: int = WINDOW_FLOWS
) -> Op[tuple[list[FlowState], str | None]]:
    """Flows within the caller's access, newest first, and where to continue."""
    asked = {"before": before or HIGHEST_ID, "window": window, "limit": limit, **reach.params}
    rows: Rows = yield Statement("flows_in_reach", asked)
    found = yield from read_flows(rows)
    if len(found) == limit:
        return found, found[-1].id
    floor = yield from _floor("floor_of_flows", before or HIGHEST_ID, window - 1, archived=False)
    return found, floor


def neighbours_in_access(
    id: str, reach: Access, limit: int
) -> Op[tuple[list[Neighbour], list[Neighbour]]]:
    """The first few prerequisites and dependents of a job within the caller's access."""
    before, after = yield from neighbours(id, limit)
    ids = json.dumps(sorted({one.id for one in (*before, *after)}))
    rows: Rows = yield Statement("jobs_in_reach", {"ids": ids, **reach.params})
    seen = {id for (id,) in rows}
    return [one for one in before if one.id in seen], [one for one in after if one.id in seen]


def _floor(statement: str, before: object, window: int, archived: bool) -> Op[str | None]:
    """The end of the window. With `archived`, both tables have one, and the narrower counts."""
    given = {"before": before, "window": window}
    rows: Rows = yield Statement(statement, given)
    past: Rows = (yield Statement("floor_of_past", given)) if archived else []
    return max((id for (id,) in (*rows, *past)), default=None)
