"""Connections to PostgreSQL that cannot hang us, and the small pools that lend them.

Every wait has a deadline, kept here and not by the server: a peer that is gone without a word costs
`deadline` seconds, then its connection is closed hard. All waits of one operation share one, so
that a slow line cannot use it up again and again. A connection that was in the middle of something
when its user gave up is closed too, never handed to the next one.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import psycopg
from psycopg.errors import _WaitTimeout
from psycopg.pq import TransactionStatus

from ..model.errors import DeadlineExceeded, StoreBusy
from ..model.lazy import lazy


class _InOneWrite:
    """Statements that travel together leave together, the Sync that ends them with them.

    psycopg sends each one as soon as it is said, and the server begins at once: a process that is
    frozen, or a host that is lost, between two of them would keep the server waiting for the rest,
    with rows locked and no timeout of its own that applies.
    """

    command_queue: Any
    pgconn: Any

    def _communicate_gen(self) -> Any:
        commands = self.command_queue
        if commands and commands[-1] == self.pgconn.pipeline_sync:
            while commands:
                commands.popleft()()  # libpq only gathers them, until the Sync
            self.pgconn.flush()  # on its way before anything else is done here
            yield from super()._communicate_gen()  # type: ignore[misc]

    def _fetch_gen(self, *, flush: bool) -> Any:
        """After a Sync the answers come by themselves. psycopg would ask for them, and the server
        would take that for the end of our idleness: its idle-in-transaction timeout would not run.
        """
        yield from super()._fetch_gen(flush=False)  # type: ignore[misc]


class Parcel(_InOneWrite, psycopg.Pipeline):
    pass


class AsyncParcel(_InOneWrite, psycopg.AsyncPipeline):
    pass


class Link(psycopg.Connection[Any]):
    """A blocking connection on which no wait outlasts its deadline."""

    deadline: float = 15.0
    until: float | None = None  # of the operation that is under way

    @lazy
    def _cursor(self) -> psycopg.Cursor[Any]:
        return self.cursor(binary=True)

    def say(self, text: str, given: Mapping[str, Any], prepare: bool) -> psycopg.Cursor[Any]:
        """One statement, whose answer is read before the next: by a cursor that is kept, because
        to make one is as dear as to send it."""
        return self._cursor.execute(text, given, prepare=prepare)

    @contextmanager
    def pipeline(self) -> Iterator[psycopg.Pipeline]:
        self._pipeline = Parcel(self)
        try:
            with self._pipeline as pipeline:
                yield pipeline
        finally:
            self._pipeline = None

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        try:
            return super().wait(gen, interval, timeout or left(self))
        except _WaitTimeout:
            give_up(self, gen)
            raise DeadlineExceeded(seconds=timeout or self.deadline) from None
        except KeyboardInterrupt:
            give_up(self, gen)
            raise


class AsyncLink(psycopg.AsyncConnection[Any]):
    """The same for asyncio. A cancelled wait closes at once instead of asking the server to stop:
    whatever it was, it is idempotent or fenced, and nobody waits for its answer."""

    deadline: float | None = 15.0
    until: float | None = None

    @lazy
    def _cursor(self) -> psycopg.AsyncCursor[Any]:
        return self.cursor(binary=True)

    async def say(
        self, text: str, given: Mapping[str, Any], prepare: bool
    ) -> psycopg.AsyncCursor[Any]:
        return await self._cursor.execute(text, given, prepare=prepare)

    @asynccontextmanager
    async def pipeline(self) -> AsyncIterator[psycopg.AsyncPipeline]:
        self._pipeline = AsyncParcel(self)
        try:
            async with self._pipeline as pipeline:
                yield pipeline
        finally:
            self._pipeline = None

    async def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        from psycopg import waiting

        try:
            return await waiting.wait_async(
                gen, self.pgconn.socket, interval=interval, timeout=timeout or left(self)
            )
        except _WaitTimeout:
            give_up(self, gen)
            raise DeadlineExceeded(seconds=timeout or self.deadline) from None
        except (asyncio.CancelledError, KeyboardInterrupt):
            give_up(self, gen)
            raise


def left(link: Link | AsyncLink) -> float | None:
    """Seconds that the next wait may take; None: for ever."""
    if link.until is None or link.deadline is None:
        return link.deadline
    return max(0.001, link.until - time.monotonic())


def give_up(link: Link | AsyncLink, gen: Any) -> None:
    """Close the connection, and the conversation on it: left alone, psycopg's generator would go
    on talking when it is collected."""
    link.pgconn.finish()
    with suppress(Exception):
        gen.close()


def usable(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    return not connection.closed and connection.info.transaction_status == TransactionStatus.IDLE


# After a fork, what the parent had open: neither used nor closed here. To close it would be to end
# the parent's own conversation.
_OF_THE_PARENT: list[Any] = []


class Pool:
    """Blocking connections, lent to one thread at a time, last returned first lent."""

    def __init__(self, connect: Callable[[], Link], size: int, patience: float) -> None:
        self._connect = connect
        self._size = size
        self._patience = patience
        self._reset()

    def _mind_fork(self) -> None:
        if self._pid != os.getpid():
            _OF_THE_PARENT.extend(self._idle)
            self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._idle: list[Link] = []
        self._places = threading.BoundedSemaphore(self._size)

    @contextmanager
    def lend(self) -> Iterator[Link]:
        self._mind_fork()
        places = self._places
        if not places.acquire(timeout=self._patience):
            raise StoreBusy(reason=f"all {self._size} connections of this process are in use")
        try:
            link = self._pop() or self._connect()
            link.until = None
            try:
                yield link
            finally:
                if usable(link):
                    self._idle.append(link)
                else:
                    link.close()
        finally:
            places.release()

    def _pop(self) -> Link | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def clear(self) -> None:
        """Close what is idle: after one connection broke, the others are suspect."""
        self._mind_fork()
        while (link := self._pop()) is not None:
            link.close()


class AsyncPool:
    """Asyncio connections of one event loop."""

    def __init__(self, connect: Callable[[], Any], size: int, patience: float) -> None:
        self._connect = connect
        self._size = size
        self._patience = patience
        self._pid = os.getpid()
        self._idle: list[AsyncLink] = []
        self._places = asyncio.Semaphore(size)

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[AsyncLink]:
        await self._have_place()
        try:
            link = self._idle.pop() if self._idle else await self._connect()
            link.until = None
            try:
                yield link
            finally:
                if usable(link):
                    self._idle.append(link)
                else:
                    await link.close()
        finally:
            self._places.release()

    async def _have_place(self) -> None:
        if not self._places.locked():
            await self._places.acquire()
            return
        try:
            async with asyncio.timeout(self._patience):
                await self._places.acquire()
        except TimeoutError:
            told = f"all {self._size} connections of this event loop are in use"
            raise StoreBusy(reason=told) from None

    async def clear(self) -> None:
        while self._idle:
            await self._idle.pop().close()

    def abandon(self) -> None:
        """Close the sockets of a loop that no longer runs, unless they are our parent's."""
        if self._pid != os.getpid():
            _OF_THE_PARENT.extend(self._idle)
            self._idle = []
        while self._idle:
            link = self._idle.pop()  # by name: it must not be collected before it is closed
            link.pgconn.finish()

    def __del__(self) -> None:
        self.abandon()  # its loop is gone, and nobody closed us while it ran


class AsyncPools:
    """A pool for each event loop: a connection never crosses from one loop into another."""

    def __init__(self, connect: Callable[[], Any], size: int, patience: float) -> None:
        self._connect = connect
        self._size = size
        self._patience = patience
        self._pid = os.getpid()
        self._by_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncPool] = (
            weakref.WeakKeyDictionary()
        )

    def mine(self) -> AsyncPool:
        loop = asyncio.get_running_loop()
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._by_loop = weakref.WeakKeyDictionary()
        pool = self._by_loop.get(loop)
        if pool is None:
            for other, stale in list(self._by_loop.items()):
                if other.is_closed():
                    stale.abandon()
                    del self._by_loop[other]
            pool = self._by_loop[loop] = AsyncPool(self._connect, self._size, self._patience)
        return pool

    def abandon(self) -> None:
        for pool in self._by_loop.values():
            pool.abandon()
