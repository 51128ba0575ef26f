"""Coroutine runner: handlers started together share one asyncio task until one of them waits. The
waiting handler keeps the task, and the others continue in a new one. When the last handler of a
task has ended, the next jobs take over its slots."""

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

LOOP_TURN_S = 0.01  # seconds after which the task yields to the event loop


@dataclass(slots=True, eq=False)
class TaskJobs:
    """The jobs of one asyncio task."""

    jobs: deque[InFlight]
    freed: int = 0  # slots of jobs that have ended since the event loop's last turn
    turn_at: float = 0.0  # when the event loop's next turn is due


class CoroutineRunner:
    """Runs async handlers; `take` adds the next jobs for a number of slots just freed."""

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
        self._context: ContextVars | None = None  # in which handlers start
        self._batches: dict[asyncio.Task[None], TaskJobs] = {}

    def run(self, jobs: deque[InFlight]) -> None:
        """Run jobs in a task of their own, with context variables of its own."""
        if self._context is None:
            self._context = copy_context()  # the worker's: handlers are first started from its loop
        loop, batch = asyncio.get_running_loop(), TaskJobs(jobs)
        task = asyncio.Task(self._run_batch(batch), loop=loop, context=self._context.copy())
        self._batches[task] = batch
        task.add_done_callback(self._batches.pop)

    def queued(self) -> set[InFlight]:
        """Jobs that have not started."""
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
                batch.freed += not job.has_slot  # an outcome that is set aside keeps its slot
                if task.cancelling() or not _is_unchanged(context):
                    break  # a cancel or a context variable must not reach the next handler
        finally:
            self._split_off(batch)

    def _take_next(self, batch: TaskJobs) -> bool:
        """Add jobs in the slots of jobs that have ended; returns whether there are any."""
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
        """Run one job. When its handler waits, the other jobs move to a new task."""
        execution: SingleExecution = job.execution  # type: ignore[assignment]  # items run together
        if execution.stopped is not None:
            return execution.interrupted()  # asked to stop before it began
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
            # Other tasks may have taken the slots of jobs that ended before.
            batch.freed, batch.turn_at = 0, time.monotonic() + LOOP_TURN_S


def _is_unchanged(context: ContextVars) -> bool:
    """Whether no context variable was set since. Values are compared by identity, because their
    `==` may do anything."""
    now = copy_context()
    for var, value in context.items():
        if now.get(var) is not value:
            return False
    return len(now) == len(context)
