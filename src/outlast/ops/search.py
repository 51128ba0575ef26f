"""Finding jobs for callers who may see some of them, in an answer's time however many there are.

A filter that fits little would have the database read everything. So a search looks at so many jobs
below a cursor and says where to go on: a page may be short, or empty, and there may be more.

The dead and those that wait have indexes by id, and are searched among themselves; those that run
are few.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from ..model.errors import FlowNotFound, JobNotFound
from ..model.job import Job, read_job
from ..model.lifecycle import State
from ..model.timestamps import age
from ..model.unreadable import read_state
from .access import ALL_JOBS, Access
from .audit import LOWEST_ID
from .breaker_report import breakers
from .operation import Op, Rows, Statement
from .report import HIGHEST_ID, Queue, queue_settings

WINDOW_JOBS = 5_000  # jobs that one look reads
MAX_KINDS = 50_000  # of jobs, in a census

_INDEXED_STATES = {State.DEAD: ("search_dead", "floor_of_dead"),
          State.WAITING: ("search_waiting", "floor_of_waiting")}  # fmt: skip


@dataclass(frozen=True, slots=True)
class JobQuery:
    """Which jobs; None means all."""

    state: str | None = None
    queue: str | None = None
    task: str | None = None
    text: str | None = None  # that is in its key or its id
    error: str | None = None  # the type of its last error

    @property
    def params(self) -> dict[str, Any]:
        """For the fragment `job_fits`."""
        return {
            "queue": self.queue,
            "task": self.task,
            "text": None if self.text is None else _like(self.text),
            "error": self.error,
        }


def _like(text: str) -> str:
    for special in "!%_":
        text = text.replace(special, f"!{special}")
    return f"%{text.lower()}%"


ALL = JobQuery()


@dataclass(frozen=True, slots=True)
class KindCount:
    """How many jobs there are of one kind."""

    tenant: str
    queue: str
    task: str
    state: str
    number: int
    oldest: float  # seconds that the oldest of them has existed


def search(
    query: JobQuery, reach: Access, before: str | None, limit: int, window: int = WINDOW_JOBS
) -> Op[tuple[list[Job], str | None]]:
    """Some jobs that fit, newest first, and where to go on: None if that is all there are. They are
    without arguments and results."""
    given = {**query.params, **reach.params, "before": before or HIGHEST_ID, "limit": limit}
    if query.state == State.RUNNING:
        running: Rows = yield Statement("search_running", given | {"floor": LOWEST_ID})
        return _page(running, limit, None)
    statement, bottom = _INDEXED_STATES.get(query.state, ("search_jobs", "floor_of_jobs"))  # type: ignore[call-overload]
    among = replace(query, state=None) if statement != "search_jobs" else query
    if statement == "search_jobs":
        given["state"] = query.state
    floor = None
    if among != ALL or reach != ALL_JOBS:  # else all that are looked at fit: no look is too long
        below: Rows = yield Statement(bottom, {"before": given["before"], "window": window})
        floor = below[0][0] if below else None
    rows: Rows = yield Statement(statement, given | {"floor": floor or LOWEST_ID})
    return _page(rows, limit, floor)


def _page(rows: Rows, limit: int, floor: str | None) -> tuple[list[Job], str | None]:
    jobs = [read_job(row) for row in rows]
    if len(jobs) == limit:
        return jobs, jobs[-1].id
    # The floor itself was not looked at: go on right above it.
    return jobs, floor and above(floor)


def above(id: str) -> str:
    """The id right above one: before it comes that one itself."""
    return str(UUID(int=UUID(id).int + 1))


def count_by_kind(limit: int = MAX_KINDS) -> Op[list[KindCount]]:
    """All jobs, counted by kind. It reads all of them: ask seldom."""
    rows: Rows = yield Statement("count_by_kind", {"limit": limit})
    return [
        KindCount(tenant, queue, task, state, int(number), age(oldest))
        for tenant, queue, task, state, number, oldest in rows
    ]


def all_queues() -> Op[list[Queue]]:
    """The queues that hold a job or have a setting, with jobs of every state counted."""
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
    """Says which of the jobs is not there for this caller, if one is not."""
    rows: Rows = yield Statement("jobs_in_reach", {"ids": json.dumps(sorted(ids)), **reach.params})
    if missing := sorted(set(ids) - {id for (id,) in rows}):
        raise JobNotFound(job=missing[0])


def flow_in_reach(flow: str, reach: Access) -> Op[None]:
    """A flow is there for a caller if all of it is."""
    rows: Rows = yield Statement("flow_reach", {"id": flow, **reach.params})
    inside, outside = rows[0]
    if not inside or outside:
        raise FlowNotFound(flow=flow)
