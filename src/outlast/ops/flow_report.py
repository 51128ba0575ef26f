"""How a flow stands: counted from its jobs, never kept beside them."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..model.errors import FlowNotFound
from ..model.job import Job, moment, read_job
from ..model.lifecycle import State
from .audit import FIRST
from .flows import BROKEN
from .statement import Op, Rows, Statement, Together

PAGE = 500
MOST_EDGES = 200_000
LONGEST_CHAIN = 100  # steps that are followed to where it began


@dataclass(frozen=True, slots=True)
class FlowState:
    """A flow as it stood when it was read."""

    id: str
    name: str | None
    counts: Mapping[str, int]  # jobs by state
    created_at: datetime
    cancelled_at: datetime | None
    reason: str | None

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def ended(self) -> int:
        return sum(number for state, number in self.counts.items() if State(state).final)

    @property
    def final(self) -> bool:
        return self.ended == self.total

    @property
    def state(self) -> str:
        """running, succeeded, dead or cancelled; partial, if only some of it succeeded."""
        if not self.final:
            return "cancelling" if self.cancelled_at else "running"
        present = {state for state, number in self.counts.items() if number}
        if present <= {State.SUCCEEDED}:
            return "succeeded"
        if State.SUCCEEDED in present:
            return "partial"
        return "cancelled" if present <= {State.CANCELLED} else "dead"

    def as_json(self) -> dict[str, Any]:
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
        }


def flow(id: str) -> Op[FlowState]:
    rows, counted = yield Together(
        [Statement("flow", {"id": id}), Statement("flow_counts", {"id": id})]
    )
    if not rows:
        raise FlowNotFound(flow=id)
    _, name, _, reason, created_at, cancelled_at = rows[0]
    counts = {str(state): 0 for state in State} | {state: int(number) for state, number in counted}
    return FlowState(id, name, counts, moment(created_at), moment(cancelled_at), reason)  # type: ignore[arg-type]


def flow_jobs(id: str, after: str = FIRST, limit: int = PAGE) -> Op[list[Job]]:
    """A page of a flow's jobs, in the order they were enqueued."""
    rows: Rows = yield Statement("flow_jobs", {"id": id, "after": after, "limit": limit})
    return [read_job(row) for row in rows]


def flow_edges(id: str, limit: int = MOST_EDGES) -> Op[list[tuple[str, str]]]:
    """Who comes after whom: pairs of a job and its follower."""
    rows: Rows = yield Statement("flow_edges", {"id": id, "limit": limit})
    return [(job, follower) for job, follower in rows]


def prerequisites(id: str, place: int, limit: int) -> Op[list[tuple[int, Job]]]:
    """A page of the jobs that one comes after, in the order given, each with its place."""
    rows: Rows = yield Statement("prerequisites", {"id": id, "place": place, "limit": limit})
    return [(int(place), read_job(row)) for place, *row in rows]


def prerequisites_in(id: str, states: Collection[State], limit: int) -> Op[tuple[int, list[Job]]]:
    """How many jobs one comes after, and the first few of those that are in certain states."""
    given = {"id": id, "states": json.dumps(sorted(states)), "limit": limit}
    counted, rows = yield Together(
        [Statement("count_prerequisites", {"id": id}), Statement("prerequisites_in", given)]
    )
    return int(counted[0][0]), [read_job(row) for row in rows]


def root_cause(job: Job) -> Op[Job | None]:
    """The job that one died of: dead or cancelled by itself, however many stand between."""
    cause: Job | None = None
    for _ in range(LONGEST_CHAIN):
        if (job.error or {}).get("type") != "PrerequisiteFailed":
            break
        _, broken = yield from prerequisites_in(job.id, BROKEN, 1)
        if not broken:
            break
        cause = job = broken[0]
    return cause
