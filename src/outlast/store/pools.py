"""The small pools that lend connections to PostgreSQL. One that was in the middle of something when
its user gave up is closed, never handed to the next one."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from ..model.errors import StoreBusy
from .links import AsyncLink, Link


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
