"""Handlers that are started together share an asyncio task for as long as none of them waits for
anything; the first that does keeps it, and the others go on in another."""

from __future__ import annotations

import asyncio
import time
import types
from collections import deque
from collections.abc import Callable, Generator
from contextvars import Context as ContextVars
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from ..model.outcome import Ended
from .execute import Alone
from .held import Held

if TYPE_CHECKING:
    from .worker import Worker


class SharedTasks:
    def __init__(self, worker: Worker, done: Callable[[Held, Ended], None]) -> None:
        self._worker = worker
        self._hands = worker.hands
        self._done = done
        self._context: ContextVars | None = None  # what handlers begin with
        self._lines: dict[asyncio.Task[None], deque[Held]] = {}

    def carry_out(self, line: deque[Held]) -> None:
        """In a task of their own, which knows nothing of what others have set in theirs."""
        if self._context is None:
            self._context = copy_context()  # the worker's: handlers are first started from its loop
        loop = asyncio.get_running_loop()
        task = asyncio.Task(self._one_by_one(line), loop=loop, context=self._context.copy())
        self._lines[task] = line
        task.add_done_callback(self._lines.pop)

    def in_line(self) -> set[Held]:
        """Those that are to be carried out."""
        return {held for line in self._lines.values() for held in line}

    async def _one_by_one(self, line: deque[Held]) -> None:
        task = asyncio.current_task()
        assert task is not None
        context = copy_context()
        try:
            while line:
                held = line.popleft()
                if held.transition is not None or not self._hands.holds(held):
                    continue  # lost, or ended, before it began
                held.task = task
                held.began_at = time.monotonic()
                self._done(held, await self._ended(held, line))
                if task.cancelling() or not _as_it_was(context):
                    break  # what this handler has asked for, or set, is not for the next
        finally:
            self._leave(line)

    def _leave(self, line: deque[Held]) -> None:
        if line:
            others = line.copy()
            line.clear()
            self.carry_out(others)

    @types.coroutine
    def _ended(self, held: Held, line: deque[Held]) -> Generator[Any, Any, Ended]:
        """Carry one out. When its handler waits, the others wait no longer for it."""
        execution = held.execution
        assert isinstance(execution, Alone)
        if execution.stopped is not None:
            return execution.interrupted()  # told to stop before it began
        body = execution.run(self._worker.threads)
        step: Callable[..., Any] = body.send
        given: Any = None
        while True:
            try:
                waited_for = step(given)
            except StopIteration as stop:
                ended: Ended = stop.value
                return ended
            except BaseException as error:
                return execution.raised(error)
            self._leave(line)
            try:
                step, given = body.send, (yield waited_for)
            except BaseException as error:
                step, given = body.throw, error


def _as_it_was(context: ContextVars) -> bool:
    """Whether nothing has been set since; by identity, because what is set may compare as it
    likes."""
    now = copy_context()
    return len(now) == len(context) and all(now.get(var) is value for var, value in context.items())
