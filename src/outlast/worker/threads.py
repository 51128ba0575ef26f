"""Threads for sync handlers: started on demand, and never joined.

The standard pool joins its threads at exit, so a handler that never returns would keep a drained
worker alive for ever, long after its job was released.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

THREAD_PREFIX = "outlast-job-"  # of the names of these threads

WorkItem = tuple["Future[Any]", Callable[[], Any]]


class Threads(Executor):
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._started = 0
        self._idle = threading.Semaphore(0)  # threads that wait for work
        self._lock = threading.Lock()
        self._work: SimpleQueue[WorkItem | None] = SimpleQueue()

    def submit(self, fn: Callable[..., Any], /, *args: object, **kwargs: object) -> Future[Any]:
        future: Future[Any] = Future()
        self._work.put((future, lambda: fn(*args, **kwargs)))
        with self._lock:
            if not self._idle.acquire(blocking=False) and self._started < self._limit:
                self._started += 1
                name = f"{THREAD_PREFIX}{self._started}"
                threading.Thread(target=self._serve, name=name, daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let idle threads end, without waiting for them."""
        with self._lock:
            for _ in range(self._started):
                self._work.put(None)

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            future, call = work
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:
                    future.set_exception(error)
            del work, future, call  # free their memory now, not at the next call
            self._idle.release()


async def in_thread(threads: Executor, call: Callable[[], T]) -> T:
    """Run the call in a thread, with the current context variables."""
    inside = contextvars.copy_context()
    result, error = await asyncio.get_running_loop().run_in_executor(
        threads, lambda: inside.run(_call_catching, call)
    )
    if error is not None:
        raise error
    return result  # type: ignore[no-any-return]


def _call_catching(call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """Return the result or the error: a future cannot carry every error, such as
    StopIteration."""
    try:
        return call(), None
    except BaseException as error:
        return None, error
