"""Small pools of connections to PostgreSQL. A connection that was in use when its user gave up is
closed, never reused."""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from .connection import AsyncDeadlineConnection, DeadlineConnection
from .connection_budget import SERVE_EVERY_S, BudgetWaiter, ConnectionBudget, Grant, PoolMember


def usable(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    return connection.pgconn.transaction_status == TransactionStatus.IDLE  # UNKNOWN: closed


class Pools:
    """The pools of one process that share a budget: one for its threads, one per event loop."""

    def __init__(
        self,
        connect: Callable[[], DeadlineConnection],
        aconnect: Callable[[], Any],
        size: int,
        acquire_timeout_s: float,
    ) -> None:
        self._connect = connect
        self._aconnect = aconnect
        self._size = size
        self._acquire_timeout_s = acquire_timeout_s
        self._lock = threading.Lock()
        self._reset()

    def _reset(self) -> None:
        budget = ConnectionBudget(self._size)
        self._threads = Pool(self._connect, self, budget, self._acquire_timeout_s)
        self._by_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncPool] = (
            weakref.WeakKeyDictionary()
        )
        self.budget = budget  # last: a thread that sees it must not find the parent's pools

    @property
    def threads(self) -> Pool:
        if self.budget.inherited:
            self._after_fork()
        return self._threads

    def loop_pool(self) -> AsyncPool:
        """The pool of the running event loop."""
        loop = asyncio.get_running_loop()
        if self.budget.inherited:
            self._after_fork()
        pool = self._by_loop.get(loop)
        if pool is None:
            with self._lock:
                self.budget.serve()  # closes connections of ended loops
                pool = AsyncPool(self._aconnect, self, self._acquire_timeout_s, loop)
                self._by_loop[loop] = pool
        return pool

    def of_running_loop(self) -> AsyncPool | None:
        """The pool of the event loop that runs in this thread, if it has one."""
        loop = asyncio._get_running_loop()
        return None if loop is None else self._by_loop.get(loop)

    def _after_fork(self) -> None:
        """In a forked child, where only the forking thread exists."""
        self.budget.forget_inherited()
        self._lock = threading.Lock()
        self._reset()

    def abandon(self) -> None:
        """Close the idle connections of all event loops from outside them."""
        for pool in list(self._by_loop.values()):
            pool.abandon()


class Pool(PoolMember):
    """Blocking connections, lent to one thread at a time."""

    def __init__(
        self,
        connect: Callable[[], DeadlineConnection],
        pools: Pools,
        budget: ConnectionBudget,
        acquire_timeout_s: float,
    ) -> None:
        super().__init__()
        self._connect = connect
        self._pools = weakref.ref(pools)
        self._budget = budget
        self._acquire_timeout_s = acquire_timeout_s
        self._budget.join(self)

    def acquire(self) -> BorrowedConnection:
        """A connection for a block of code."""
        return BorrowedConnection(self)

    def lend(self) -> tuple[Grant, DeadlineConnection]:
        grant = self._acquire_grant()
        try:
            grant.vacate()
            link: DeadlineConnection = grant.link or self._connect()
            link.until = None
            self.in_use.add(link)
        except BaseException:
            self._budget.release(grant, None)
            raise
        return grant, link

    def release(self, grant: Grant, link: DeadlineConnection) -> None:
        kept = None
        try:
            self.in_use.discard(link)
            if self._budget.inherited or (usable(link) and not grant.spare):
                kept = link
            else:
                link.close()
        finally:
            self._budget.release(grant, kept)

    def _acquire_grant(self) -> Grant:
        grant = self._budget.claim(self)
        if grant is not None:
            return grant
        if self._would_deadlock():
            return self._budget.extra_grant(self)
        woken = threading.Event()
        waiter = BudgetWaiter(self, woken.set)
        until = time.monotonic() + self._acquire_timeout_s
        with self._budget.queued(waiter):
            while waiter.grant is None and (left := until - time.monotonic()) > 0:
                if not woken.wait(min(left, SERVE_EVERY_S)):
                    self._budget.serve()
        return waiter.received()

    def _would_deadlock(self) -> bool:
        """Whether waiting here would deadlock: this thread runs an event loop, and while it waits,
        the loop cannot return its connections."""
        pools = self._pools()
        loop = pools.of_running_loop() if pools else None
        return loop is not None and self._budget.uses(loop)

    def clear(self) -> None:
        """Close idle connections: after one broke, the others are suspect."""
        for link in self._budget.empty(self):
            link.close()


class BorrowedConnection:
    """`with pool.acquire() as link:`, for a fifth of what a generator costs."""

    __slots__ = ("_grant", "_link", "_pool")

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def __enter__(self) -> DeadlineConnection:
        self._grant, self._link = self._pool.lend()
        return self._link

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._pool.release(self._grant, self._link)


class AsyncPool(PoolMember):
    """Asyncio connections of one event loop; a connection never moves to another."""

    def __init__(
        self,
        connect: Callable[[], Any],
        pools: Pools,
        acquire_timeout_s: float,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__()
        self._connect = connect
        self._budget = pools.budget
        self._acquire_timeout_s = acquire_timeout_s
        self._loop = weakref.ref(loop)
        self._budget.join(self)

    @property
    def ended(self) -> bool:
        loop = self._loop()
        return loop is None or loop.is_closed()

    @property
    def serving(self) -> bool:
        loop = self._loop()
        return loop is not None and loop.is_running()

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[AsyncDeadlineConnection]:
        grant, kept = self._budget.claim(self) or await self._wait(), None
        try:
            grant.vacate()
            link = grant.link or await self._connect()
            link.until = None
            self.in_use.add(link)
            try:
                yield link
            finally:
                self.in_use.discard(link)
                if self._budget.inherited or usable(link):
                    kept = link
                else:
                    await link.close()
        finally:
            self._budget.release(grant, kept)

    async def _wait(self) -> Grant:
        loop = asyncio.get_running_loop()
        woken = asyncio.Event()
        waiter = BudgetWaiter(self, lambda: loop.call_soon_threadsafe(woken.set))
        until = loop.time() + self._acquire_timeout_s
        with self._budget.queued(waiter):
            while waiter.grant is None and (left := until - loop.time()) > 0:
                try:
                    async with asyncio.timeout(min(left, SERVE_EVERY_S)):
                        await woken.wait()
                except TimeoutError:
                    self._budget.serve()
        return waiter.received()

    async def clear(self) -> None:
        for link in self._budget.empty(self):
            await link.close()

    def abandon(self) -> None:
        """Close the idle sockets from outside the loop, unless they are the parent's."""
        for link in self._budget.empty(self):
            link.pgconn.finish()

    def __del__(self) -> None:
        self._budget.collected(self)  # its loop is gone without closing it
