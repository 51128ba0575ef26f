"""Handlers started together share one asyncio task until one of them waits; that one keeps the
task, and the others continue in a new one. When the last of a task has ended, the next jobs take
the slots that it leaves."""

from __future__ import annotations

import asyncio
import time
import types
from collections import deque
from collections.abc import Callable, Generator
from contextvars import Context as ContextVars
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any

from ..model.outcome import AttemptEnd
from .executor import SingleExecution
from .in_flight import InFlight, InFlightJobs
from .threads import Threads

LOOP_TURN_S = 0.01  # seconds after which the event loop has its turn before the next jobs


@dataclass(slots=True, eq=False)
class TaskJobs:
    """The jobs of one task."""

    jobs: deque[InFlight]
    freed: int = 0  # slots of those that have ended since the event loop had its turn
    turn_at: float = 0.0  # when it should have it again


class CoroutineRunner:
    """`take` adds the next jobs, for so many slots that have just become free."""

    def __init__(
        self,
        in_flight: InFlightJobs,
        threads: Threads,
        done: Callable[[InFlight, AttemptEnd], None],
        take: Callable[[deque[InFlight], int], None],
    ) -> None:
        self._take = take
        self._in_flight = in_flight
        self._threads = threads
        self._done = done
        self._context: ContextVars | None = None  # what handlers begin with
        self._batches: dict[asyncio.Task[None], TaskJobs] = {}

    def run(self, jobs: deque[InFlight]) -> None:
        """In a task of their own, which knows nothing of what others have set in theirs."""
        if self._context is None:
            self._context = copy_context()  # the worker's: handlers are first started from its loop
        loop, batch = asyncio.get_running_loop(), TaskJobs(jobs)
        task = asyncio.Task(self._run_batch(batch), loop=loop, context=self._context.copy())
        self._batches[task] = batch
        task.add_done_callback(self._batches.pop)

    def queued(self) -> set[InFlight]:
        """Jobs that are still to run."""
        return {job for batch in self._batches.values() for job in batch.jobs}

    async def _run_batch(self, batch: TaskJobs) -> None:
        task = asyncio.current_task()
        assert task is not None
        context = copy_context()
        batch.turn_at = time.monotonic() + LOOP_TURN_S
        try:
            while batch.jobs or self._take_next(batch):
                job = batch.jobs.popleft()
                if job.transition is not None or not self._in_flight.holds(job):
                    continue  # lost, or ended, before it began
                job.task = task
                job.began_at = time.monotonic()
                self._done(job, await self._run_one(job, batch))
                batch.freed += not job.has_slot  # an outcome that waits alone keeps its slot
                if task.cancelling() or not _is_unchanged(context):
                    break  # what this handler has asked for, or set, is not for the next
        finally:
            self._split_off(batch)

    def _take_next(self, batch: TaskJobs) -> bool:
        """More jobs, in the slots of those that have ended."""
        if not batch.freed or time.monotonic() > batch.turn_at:
            return False
        free, batch.freed = batch.freed, 0
        self._take(batch.jobs, free)
        return bool(batch.jobs)

    def _split_off(self, batch: TaskJobs) -> None:
        if batch.jobs:
            others, batch.jobs = batch.jobs, deque()
            self.run(others)

    @types.coroutine
    def _run_one(self, job: InFlight, batch: TaskJobs) -> Generator[Any, Any, AttemptEnd]:
        """Carry one out. When its handler waits, the others wait no longer for it."""
        execution: SingleExecution = job.execution  # type: ignore[assignment]  # items run together
        if execution.stopped is not None:
            return execution.interrupted()  # told to stop before it began
        body = execution.run(self._threads)
        step: Callable[..., object] = body.send
        given: object = None
        while True:
            try:
                waited_for = step(given)
            except StopIteration as stop:
                ended: AttemptEnd = stop.value
                return ended
            except BaseException as error:
                return execution.raised(error)
            self._split_off(batch)
            try:
                step, given = body.send, (yield waited_for)
            except BaseException as error:
                step, given = body.throw, error
            # Meanwhile others may have taken the slots of those that ended before.
            batch.freed, batch.turn_at = 0, time.monotonic() + LOOP_TURN_S


def _is_unchanged(context: ContextVars) -> bool:
    """Whether nothing has been set since; by identity, because what is set may compare as it
    likes."""
    now = copy_context()
    for var, value in context.items():
        if now.get(var) is not value:
            return False
    return len(now) == len(context)
