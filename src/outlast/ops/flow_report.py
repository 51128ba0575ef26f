"""The state of a flow: counted from its jobs, never stored."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..model.errors import FlowNotFound, JobNotFound
from ..model.job import Job, read_error, read_job
from ..model.lifecycle import FINAL, State
from ..model.timestamps import to_datetime
from ..model.unreadable import UNREADABLE, read_state
from .audit import LOWEST_ID
from .flow_links import FAILED_STATES
from .operation import Op, Pipeline, Row, Rows, Statement
from .report import HIGHEST_ID
from .report import job as one_job

PAGE = 500
MAX_EDGES_SHOWN = 200_000
MAX_JOBS_SHOWN = 20_000  # jobs
FLOW_STATES = ("running", "cancelling", "succeeded", "partial", "dead", "cancelled")
LIVE = FLOW_STATES[:2]
MAX_CAUSE_DEPTH = 100  # steps followed to the root cause


@dataclass(frozen=True, slots=True)
class FlowState:
    """A flow as read from the database: its jobs counted by state, and the state derived from them.

    `state` is "running" while any job has not ended ("cancelling" if the flow is cancelled), then
    "succeeded" if all jobs succeeded, "partial" if some did, otherwise "cancelled" if all were
    cancelled, or "dead". `ended` of `total` jobs have ended; `final` is true if all have.
    """

    id: str
    name: str | None
    counts: Mapping[str, int]  # jobs by state
    created_at: datetime
    cancelled_at: datetime | None
    reason: str | None
    key: str | None = None  # its idempotency key

    @property
    def total(self) -> int:
        """The number of its jobs so far: running jobs may add more."""
        return sum(self.counts.values())

    @property
    def ended(self) -> int:
        """The number of its jobs that have ended, in any final state."""
        return sum(number for state, number in self.counts.items() if state in FINAL)

    @property
    def final(self) -> bool:
        """Whether all of its jobs have ended."""
        return self.ended == self.total

    @property
    def state(self) -> str:
        """running, cancelling, succeeded, partial, dead or cancelled."""
        if not self.final:
            return "cancelling" if self.cancelled_at else "running"
        present = {state for state, number in self.counts.items() if number}
        if present <= {State.SUCCEEDED}:
            return "succeeded"
        if State.SUCCEEDED in present:
            return "partial"
        return "cancelled" if present <= {State.CANCELLED} else "dead"

    def as_json(self) -> dict[str, Any]:
        """This state as JSON values."""
        return {
            "id": self.id,
            "name": self.name,
            "state": self.state,
            "counts": dict(self.counts),
            "total": self.total,
            "ended": self.ended,
            "created_at": self.created_at.isoformat(),
            "cancelled_at": self.cancelled_at and self.cancelled_at.isoformat(),
            "reason": self.reason,
            "key": self.key,
        }


@dataclass(frozen=True, slots=True)
class JobOutline:
    """A job of a flow, with the facts that a drawing of the flow shows."""

    id: str
    task: str
    state: State
    attempt: int = 0
    waits_for: int = 0
    cancelling: bool = False
    error: object = None
    run_at: float | None = None
    started_at: float | None = None
    finished_at: float | None = None


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A prerequisite or dependent of a job."""

    id: str
    task: str
    state: str


def flow(id: str) -> Op[FlowState]:
    rows, counted = yield Pipeline(
        [Statement("flow", {"id": id}), Statement("flow_counts", {"id": id})]
    )
    if not rows:
        raise FlowNotFound(flow=id)
    _, name, _, reason, created_at, cancelled_at, key = rows[0]
    return _state((id, name, reason, created_at, cancelled_at, key), dict(counted))


def flows(state: str | None, before: str | None, limit: int) -> Op[list[FlowState]]:
    """Flows, newest first, after a cursor. States are derived, not stored: pages are read until
    enough flows match."""
    found: list[FlowState] = []
    last = before or HIGHEST_ID
    while len(found) < limit:
        asked = {"before": last, "live": state in LIVE, "limit": min(limit, PAGE)}
        rows: Rows = yield Statement("flows", asked)
        if not rows:
            break
        page = yield from read_flows(rows)
        found += [flow for flow in page if state in (None, flow.state)]
        last = page[-1].id
    return found[:limit]


def read_flows(rows: Rows) -> Op[list[FlowState]]:
    """Flows from their rows, with their jobs counted."""
    counts = (yield from _counts([row[0] for row in rows])) if rows else {}
    return [_state(row, counts.get(row[0], {})) for row in rows]


def _counts(ids: Sequence[str]) -> Op[dict[str, dict[str, int]]]:
    rows: Rows = yield Statement("counts_of_flows", {"ids": json.dumps(ids)})
    counts: dict[str, dict[str, int]] = {}
    for flow, state, number in rows:
        counts.setdefault(flow, {})[state] = number
    return counts


def _state(row: Row, counted: Mapping[str, int]) -> FlowState:
    id, name, reason, created_at, cancelled_at, key = row
    counts = {str(state): int(counted.get(state, 0)) for state in State}
    if unknown := sum(number for state, number in counted.items() if state not in counts):
        counts[str(UNREADABLE)] = int(unknown)  # such a job has not ended, so neither has its flow
    created, cancelled = to_datetime(created_at), to_datetime(cancelled_at)
    return FlowState(id, name, counts, created, cancelled, reason, key)


def flow_of(id: str) -> Op[str]:
    """The flow of an id: its own, that of a job in it, or that of a part of it."""
    rows: Rows = yield Statement("flow", {"id": id})
    if rows:
        return rows[0][2] or id
    try:
        job = yield from one_job(id)
    except JobNotFound:
        raise FlowNotFound(
            f"There is no flow {id}, and no job: it never existed, or it ended and was pruned.",
            flow=id,
        ) from None
    if job.flow is None:
        raise FlowNotFound(f"Job {id} belongs to no flow: see `outlast job {id}`.", flow=id)
    return job.flow


def outline(id: str, limit: int = MAX_JOBS_SHOWN) -> Op[list[JobOutline]]:
    """A flow's jobs in the order of enqueue, without arguments and results."""
    rows: Rows = yield Statement("flow_outline", {"id": id, "limit": limit})
    return [
        JobOutline(
            id, task, read_state(state), attempt, waits, bool(stop), read_error(error), *times
        )
        for id, task, state, attempt, waits, stop, error, *times in rows
    ]


def flow_jobs(id: str, after: str = LOWEST_ID, limit: int = PAGE) -> Op[list[Job]]:
    """A page of a flow's jobs, in the order of enqueue."""
    rows: Rows = yield Statement("flow_jobs", {"id": id, "after": after, "limit": limit})
    return [read_job(row) for row in rows]


def jobs_of(id: str, after: str, limit: int) -> Op[list[Job]]:
    """A page of the jobs of a flow; raises if the flow does not exist."""
    page = yield from flow_jobs(id, after, limit)
    if not page:
        yield from flow(id)
    return page


def flow_edges(id: str, limit: int = MAX_EDGES_SHOWN) -> Op[list[tuple[str, str]]]:
    """The edges of a flow: pairs of a job and its dependent."""
    rows: Rows = yield Statement("flow_edges", {"id": id, "limit": limit})
    return [(job, follower) for job, follower in rows]


def prerequisites(id: str, position: int, limit: int) -> Op[list[tuple[int, Job]]]:
    """A page of a job's prerequisites, in the order given, each with its position."""
    rows: Rows = yield Statement("prerequisites", {"id": id, "place": position, "limit": limit})
    return [(int(position), read_job(row)) for position, *row in rows]


def neighbours(id: str, limit: int) -> Op[tuple[list[Neighbour], list[Neighbour]]]:
    """The first few prerequisites and dependents of a job."""
    before = yield from prerequisites(id, -1, limit)
    rows: Rows = yield Statement("followers", {"id": id, "limit": limit})
    return [Neighbour(job.id, job.task, job.state) for _, job in before], [
        Neighbour(*row) for row in rows
    ]


def prerequisites_in(id: str, states: Collection[State], limit: int) -> Op[tuple[int, list[Job]]]:
    """The number of a job's prerequisites, and the first few in certain states."""
    given = {"id": id, "states": json.dumps(sorted(states)), "limit": limit}
    counted, rows = yield Pipeline(
        [Statement("count_prerequisites", {"id": id}), Statement("prerequisites_in", given)]
    )
    return int(counted[0][0]), [read_job(row) for row in rows]


def root_cause(job: Job) -> Op[Job | None]:
    """The job at the root of a failure: one that died or was cancelled by itself, at any depth."""
    cause: Job | None = None
    for _ in range(MAX_CAUSE_DEPTH):
        if (job.error or {}).get("type") != "PrerequisiteFailed":
            break
        _, broken = yield from prerequisites_in(job.id, FAILED_STATES, 1)
        if not broken:
            break
        cause = job = broken[0]
    return cause
