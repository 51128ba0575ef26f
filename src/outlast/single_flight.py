"""Single flight: concurrent callers of a key share one call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Generic, TypeVar

T = TypeVar("T")


class SingleFlight(Generic[T]):
    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[T]] = {}

    async def run(self, key: str, call: Callable[[], Coroutine[object, object, T]]) -> T:
        # A caller that is cancelled does not cancel the call of the others.
        return await asyncio.shield(self.start(key, call))

    def start(self, key: str, call: Callable[[], Coroutine[object, object, T]]) -> asyncio.Task[T]:
        """The call as a task, for callers that need not wait for its result."""
        task = self._tasks.get(key)
        if task is None or task.get_loop() is not asyncio.get_running_loop():
            task = self._tasks[key] = asyncio.create_task(call())
            task.add_done_callback(lambda done: self._done(key, done))
        return task

    async def aclose(self) -> None:
        """Cancel the calls in flight."""
        tasks = [*self._tasks.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _done(self, key: str, task: asyncio.Task[T]) -> None:
        if self._tasks.get(key) is task:
            del self._tasks[key]
        if not task.cancelled():
            task.exception()  # callers get it; all of them may have been cancelled


async def result_within(task: asyncio.Task[T], seconds: float) -> T | None:
    """The result if it comes in time; None: the task takes longer, and continues. An error that
    comes in time is raised."""
    await asyncio.wait([task], timeout=seconds)
    return task.result() if task.done() else None
