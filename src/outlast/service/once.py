"""A question that many ask at once is put once, and its answer is for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Once(Generic[T]):
    def __init__(self) -> None:
        self._asked: dict[str, asyncio.Task[T]] = {}

    async def ask(self, name: str, question: Callable[[], Coroutine[Any, Any, T]]) -> T:
        # One who leaves takes nobody's answer away.
        return await asyncio.shield(self.begin(name, question))

    def begin(self, name: str, question: Callable[[], Coroutine[Any, Any, T]]) -> asyncio.Task[T]:
        """The same, for who need not wait for the answer."""
        task = self._asked.get(name)
        if task is None or task.get_loop() is not asyncio.get_running_loop():
            task = self._asked[name] = asyncio.create_task(question())
            task.add_done_callback(lambda done: self._answered(name, done))
        return task

    def _answered(self, name: str, task: asyncio.Task[T]) -> None:
        if self._asked.get(name) is task:
            del self._asked[name]
        if not task.cancelled():
            task.exception()  # those who asked have it; all of them may have left


async def soon(answer: asyncio.Task[T], seconds: float) -> T | None:
    """What is answered, if that is soon; None: it takes longer, and goes on. What goes wrong soon
    goes wrong here."""
    await asyncio.wait([answer], timeout=seconds)
    return answer.result() if answer.done() else None
