"""A question that many ask at once is put once, and its answer is for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class SingleFlight(Generic[T]):
    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[T]] = {}

    async def run(self, name: str, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        # One who leaves takes nobody's answer away.
        return await asyncio.shield(self.start(name, call))

    def start(self, name: str, call: Callable[[], Coroutine[Any, Any, T]]) -> asyncio.Task[T]:
        """The same, for who need not wait for the answer."""
        task = self._tasks.get(name)
        if task is None or task.get_loop() is not asyncio.get_running_loop():
            task = self._tasks[name] = asyncio.create_task(call())
            task.add_done_callback(lambda done: self._done(name, done))
        return task

    def _done(self, name: str, task: asyncio.Task[T]) -> None:
        if self._tasks.get(name) is task:
            del self._tasks[name]
        if not task.cancelled():
            task.exception()  # those who asked have it; all of them may have left


async def result_within(task: asyncio.Task[T], seconds: float) -> T | None:
    """What is answered, if that is soon; None: it takes longer, and goes on. What goes wrong soon
    goes wrong here."""
    await asyncio.wait([task], timeout=seconds)
    return task.result() if task.done() else None
