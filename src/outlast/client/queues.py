"""Verbs for queues: pause, resume, retention, circuit breakers."""

from __future__ import annotations

from ..model.options import check_name
from ..model.options import seconds as span
from ..ops import breaker_report, job_actions, search
from ..ops import breakers as breaker_actions
from ..ops.breaker_report import BreakerState
from ..ops.report import Queue
from ..ops.retention import set_retention
from .base import ANY_QUEUE, actor
from .faces import Face


async def queues(on: Face) -> list[Queue]:
    """Every queue with a job or a setting, with its jobs counted by state. Reads all jobs: call it
    rarely."""
    return await on.run(search.all_queues)


async def pause(on: Face, queue: str) -> None:
    """Claim no more jobs of this queue; running ones continue. Survives restarts."""
    await on.run(job_actions.set_paused, check_name("queue", queue), True, actor())


async def resume(on: Face, queue: str) -> None:
    """Claim jobs of a paused queue again."""
    await on.run(job_actions.set_paused, check_name("queue", queue), False, actor())
    await on.notify([queue])


async def keep(on: Face, queue: str, seconds: float | None) -> None:
    """Keep succeeded and cancelled jobs of a queue for at most this long, shorter than those of
    other queues; None: as long as those. Survives restarts."""
    await on.run(set_retention, check_name("queue", queue), span("keep", seconds), actor())


async def breakers(on: Face) -> list[BreakerState]:
    """Open circuit breakers: tasks whose calls are stopped, and why."""
    return await on.run(breaker_report.breakers)


async def close_breaker(on: Face, queue: str, task: str | None = None) -> int:
    """Close the open circuit breaker of a task in this queue, or all of the queue; how many were
    open. The jobs are claimed again at once."""
    named = None if task is None else check_name("task", task)
    checked = check_name("queue", queue), named
    closed = await on.run(breaker_actions.close_breaker, *checked, None, actor())
    await on.notify([ANY_QUEUE] if closed else [])
    return len(closed)
