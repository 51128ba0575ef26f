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
from ..model.moments import age
from ..model.unreadable import read_state
from .audit import FIRST
from .breaker_report import breakers
from .reach import EVERYTHING, Reach
from .report import BEYOND, Queue, queue_settings
from .statement import Op, Rows, Statement

WINDOW = 5_000  # jobs that one look reads
MOST_KINDS = 50_000  # of jobs, in a census

_APART = {State.DEAD: ("search_dead", "floor_of_dead"),
          State.WAITING: ("search_waiting", "floor_of_waiting")}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sought:
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


ALL = Sought()


@dataclass(frozen=True, slots=True)
class Kind:
    """How many jobs there are of one kind."""

    tenant: str
    queue: str
    task: str
    state: str
    number: int
    oldest: float  # seconds that the oldest of them has existed


def search(
    sought: Sought, reach: Reach, before: str | None, limit: int, window: int = WINDOW
) -> Op[tuple[list[Job], str | None]]:
    """Some jobs that fit, newest first, and where to go on: None if that is all there are. They are
    without arguments and results."""
    given = {**sought.params, **reach.params, "before": before or BEYOND, "limit": limit}
    if sought.state == State.RUNNING:
        running: Rows = yield Statement("search_running", given | {"floor": FIRST})
        return _page(running, limit, None)
    look, bottom = _APART.get(sought.state, ("search_jobs", "floor_of_jobs"))  # type: ignore[call-overload]
    among = replace(sought, state=None) if look != "search_jobs" else sought
    if look == "search_jobs":
        given["state"] = sought.state
    floor = None
    if among != ALL or reach != EVERYTHING:  # else all that are looked at fit: no look is too long
        below: Rows = yield Statement(bottom, {"before": given["before"], "window": window})
        floor = below[0][0] if below else None
    rows: Rows = yield Statement(look, given | {"floor": floor or FIRST})
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


def census(limit: int = MOST_KINDS) -> Op[list[Kind]]:
    """All jobs, counted by kind. It reads all of them: ask seldom."""
    rows: Rows = yield Statement("census", {"limit": limit})
    return [
        Kind(tenant, queue, task, state, int(number), age(oldest))
        for tenant, queue, task, state, number, oldest in rows
    ]


def all_queues() -> Op[list[Queue]]:
    """The queues that hold a job or have a setting, with jobs of every state counted."""
    found = yield from queue_settings()
    for kind in (yield from census()):
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


def all_in_reach(ids: Collection[str], reach: Reach) -> Op[None]:
    """Says which of the jobs is not there for this caller, if one is not."""
    rows: Rows = yield Statement("jobs_in_reach", {"ids": json.dumps(sorted(ids)), **reach.params})
    if missing := sorted(set(ids) - {id for (id,) in rows}):
        raise JobNotFound(job=missing[0])


def flow_in_reach(flow: str, reach: Reach) -> Op[None]:
    """A flow is there for a caller if all of it is."""
    rows: Rows = yield Statement("flow_reach", {"id": flow, **reach.params})
    inside, outside = rows[0]
    if not inside or outside:
        raise FlowNotFound(flow=flow)
