"""Verbs for queues: pause, resume, retention, circuit breakers."""

from __future__ import annotations

from typing import Any

from ..model.errors import InvalidOption
from ..model.options import check_name
from ..model.options import seconds as span
from ..ops import breaker_report, job_actions, search
from ..ops import breakers as breaker_actions
from ..ops.breaker_report import BreakerState
from ..ops.lanes import set_lane_paused
from ..ops.report import Queue
from ..ops.retention import set_retention
from .faces import Face
from .verb_arguments import ANY_QUEUE, actor


async def queues(on: Face) -> list[Queue]:
    """Every queue with a job or a setting, with its jobs counted by state. Reads all jobs: call it
    rarely."""
    return await on.run(search.all_queues)


async def pause(
    on: Face, queue: str | None = None, *, lane: str | None = None, tenant: str | None = None
) -> None:
    """Stop claiming jobs of this queue, or of one of its lanes; running ones continue. With
    `tenant` instead of a queue: of the tenant's lanes in all queues with `lane="tenant"`. Survives
    restarts."""
    await on.run(*_pausing(queue, lane, tenant, True))


async def resume(
    on: Face, queue: str | None = None, *, lane: str | None = None, tenant: str | None = None
) -> None:
    """Claim jobs of a paused queue, lane or tenant again."""
    await on.run(*_pausing(queue, lane, tenant, False))
    await on.notify([queue or ANY_QUEUE])


def _pausing(
    queue: str | None, lane: str | None, tenant: str | None, paused: bool
) -> tuple[Any, ...]:
    """The operation that pauses or resumes a queue, a lane or a tenant, with its arguments."""
    if (queue is None) == (tenant is None) or (lane is not None and queue is None):
        raise InvalidOption(
            option="queue", reason="must be given, alone or with a lane; or else a tenant"
        )
    if tenant is not None:
        return set_lane_paused, "", check_name("tenant", tenant), paused, actor()
    if lane is None:
        return job_actions.set_paused, check_name("queue", queue), paused, actor()
    given = check_name("queue", queue), check_name("lane", lane)
    return set_lane_paused, *given, paused, actor()


async def keep(on: Face, queue: str, seconds: float | None) -> None:
    """Keep succeeded and cancelled jobs of a queue for at most this long, shorter than in other
    queues; None: as long as in those. Survives restarts."""
    await on.run(set_retention, check_name("queue", queue), span("keep", seconds), actor())


async def breakers(on: Face) -> list[BreakerState]:
    """Open circuit breakers, with task and reason."""
    return await on.run(breaker_report.breakers)


async def close_breaker(on: Face, queue: str, task: str | None = None) -> int:
    """Close the open circuit breaker of a task in this queue, or all of the queue; returns how many
    were open. The jobs are claimed again at once."""
    named = None if task is None else check_name("task", task)
    checked = check_name("queue", queue), named
    closed = await on.run(breaker_actions.close_breaker, *checked, None, actor())
    await on.notify([ANY_QUEUE] if closed else [])
    return len(closed)
