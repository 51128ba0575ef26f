"""Faces of verbs: blocking and asyncio; each verb is written once.

    async def cancel(on: Face, id: str, reason: str = "") -> Job:       # jobs.py
        job = await on.run(job_actions.cancel, job_id(id), actor(), reason)
        ...

    class Outlast:
        cancel, acancel = twins(job_verbs.cancel)                       # client.py

A verb is a coroutine that awaits nothing but its face. Each method of the blocking face does its
work before it returns, so the verb never suspends, and no event loop is needed to run it.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial, update_wrapper
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from ..model.errors import StoreError
from ..ops.bulk import matching
from ..ops.enqueue import CANCEL_SIGNAL, notify_queues
from ..ops.operation import Op
from ..ops.report import Filter
from ..store import Store
from ..store.caller.connection import arun_on, run_on
from .resources import ClientResources
from .result_waiter import JobEnd
from .verb_arguments import ANY_QUEUE

if TYPE_CHECKING:
    from .client import Outlast

T = TypeVar("T")
P = ParamSpec("P")

PAGE_JOBS = 500  # jobs per transaction of a bulk verb

Blocking = Callable[Concatenate["Outlast", P], T]
Asyncio = Callable[Concatenate["Outlast", P], Coroutine[object, object, T]]


class Face(ABC):
    """Everything a verb may await."""

    def __init__(self, parts: ClientResources) -> None:
        self.parts = parts

    @property
    def store(self) -> Store:
        return self.parts.store

    @abstractmethod
    async def run(self, operation: Callable[P, Op[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an operation on a connection of the store."""

    @abstractmethod
    async def run_on(self, conn: object, op: Op[T]) -> T:
        """Run an operation on the caller's own connection."""

    @abstractmethod
    async def ready_beside_caller(self, create: bool = True) -> None:
        """Create missing tables, or refuse, for a caller with an open transaction."""

    @abstractmethod
    async def in_thread(self, work: Callable[[], T]) -> T:
        """Do blocking work without blocking an event loop."""

    @abstractmethod
    async def sleep(self, seconds: float) -> None: ...

    @abstractmethod
    async def job_end(self, id: str, timeout: float | None) -> JobEnd:
        """Wait until a job has ended, or until the timeout."""

    def ambient(self, conn: object) -> object:
        """The caller's connection: as given, or that of the open transaction around it."""
        if conn is None and (found := self.parts.ambient) is not None:
            return found.connection()
        return conn

    async def act_on(
        self, conn: object, op: Op[T], messages: Callable[[T], list[str]] = lambda _: []
    ) -> T:
        """Run an operation in the caller's transaction. Its notification is sent when that
        commits."""
        await self.ready_beside_caller(create=False)
        return await self.run_on(conn, self._notifying(op, messages))

    def _notifying(self, op: Op[T], messages: Callable[[T], list[str]]) -> Op[T]:
        done = yield from op
        if self.store.can_notify and (due := messages(done)):
            yield from notify_queues(self.store.channel, due)
        return done

    async def notify(self, messages: list[str]) -> None:
        """Notify workers. Notifications only save time, so failures are ignored."""
        if messages and self.store.can_notify:
            with suppress(StoreError):
                await self.run(notify_queues, self.store.channel, messages)

    async def notify_owners(self) -> None:
        """Notify workers: running jobs should stop, and other jobs may be ready."""
        await self.notify([CANCEL_SIGNAL, ANY_QUEUE])

    async def delete_blobs(self, names: Sequence[str]) -> None:
        """Delete the blobs of deleted rows; unreachable ones are left to the sweep."""
        if names and (blobs := self.parts.blobs) is not None:
            await self.in_thread(partial(blobs.remove, names))

    async def pages(self, which: Filter) -> AsyncIterator[list[str]]:
        """The ids of all matching jobs, a page at a time."""
        cursor = None
        while page := await self.run(matching, which, cursor, PAGE_JOBS):
            yield page
            cursor = page[-1]


class BlockingFace(Face):
    """Never suspends: `finish` gets a verb's result without an event loop."""

    async def run(self, operation: Callable[P, Op[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        return self.store.run(operation, *args, **kwargs)

    async def run_on(self, conn: object, op: Op[T]) -> T:
        return run_on(conn, self.store, op)

    async def ready_beside_caller(self, create: bool = True) -> None:
        self.store.ready_beside_caller(create)

    async def in_thread(self, work: Callable[[], T]) -> T:
        return work()

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - there is no event loop

    async def job_end(self, id: str, timeout: float | None) -> JobEnd:
        return self.parts.result_poller.wait(id, timeout)


class AsyncFace(Face):
    async def run(self, operation: Callable[P, Op[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.store.arun(operation, *args, **kwargs)

    async def run_on(self, conn: object, op: Op[T]) -> T:
        return await arun_on(conn, self.store, op)

    async def ready_beside_caller(self, create: bool = True) -> None:
        await self.store.aready_beside_caller(create)

    async def in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.to_thread(work)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def job_end(self, id: str, timeout: float | None) -> JobEnd:
        return await self.parts.result_poller.await_(id, timeout)


def finish(verb: Coroutine[object, object, T]) -> T:
    """Run a verb on the blocking face and return its result."""
    try:
        verb.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    verb.close()
    raise RuntimeError("a verb awaits only its face")


def twins(
    verb: Callable[Concatenate[Face, P], Coroutine[object, object, T]],
) -> tuple[Blocking[P, T], Asyncio[P, T]]:
    """The two methods of `Outlast` for a verb: `jobs` and `ajobs`."""

    def blocking(self: Outlast, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return finish(verb(self._blocking, *args, **kwargs))

    async def on_event_loop(self: Outlast, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await verb(self._async, *args, **kwargs)

    _describe(blocking, verb, verb.__name__)
    _describe(on_event_loop, verb, f"a{verb.__name__}")
    return blocking, on_event_loop


def _describe(method: Callable[..., object], verb: Callable[..., object], name: str) -> None:
    """Give a method the verb's docstring and signature, with `self` in the place of the face."""
    signature = inspect.signature(verb)
    face, *others = signature.parameters.values()
    parameters = [face.replace(name="self", annotation=face.empty), *others]
    update_wrapper(method, verb)
    method.__name__, method.__qualname__ = name, f"Outlast.{name}"
    vars(method)["__signature__"] = signature.replace(parameters=parameters)
