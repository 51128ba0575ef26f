"""A connection lent to a handler, in an open transaction: its own writes, and then our last word.

It is nobody else's meanwhile: on PostgreSQL of a pool of its own, so that a handler that takes its
time does not keep its worker waiting, and whatever it sets there stays there; on SQLite a fresh
one. Whoever leaves without `commit` has written nothing.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from typing import Any, Protocol, TypeVar

from ..model.errors import StoreUnavailable, WrongConnection
from ..ops.statement import Op
from . import sqlite_files as sqlite
from .base import Store
from .callers import arun_on, run_on
from .settling import settled
from .sqlite_guarded import GuardedConnection
from .statements import SQLITE

T = TypeVar("T")


class Lent(Protocol):
    connection: Any

    def run(self, op: Op[T]) -> T: ...

    def commit(self) -> None: ...


class AsyncLent(Protocol):
    connection: Any

    async def run(self, op: Op[T]) -> T: ...

    async def commit(self) -> None: ...


def lend(store: Store) -> AbstractContextManager[Lent]:
    """For a handler in a thread."""
    store.ready()
    return _lend_sqlite(store) if store.address.dialect == SQLITE else _lend_postgres(store)


@asynccontextmanager
async def alend(store: Store) -> AsyncIterator[AsyncLent]:
    """For a handler in an event loop."""
    await store.aready()
    kind = _alend_sqlite if store.address.dialect == SQLITE else _alend_postgres
    lending: AbstractAsyncContextManager[AsyncLent] = kind(store)
    async with lending as lent:
        yield lent


# SQLite


class SqliteLent:
    connection: GuardedConnection

    def __init__(self, store: Any) -> None:
        self.store = store

    def begin(self) -> SqliteLent:
        with sqlite.understood():
            self.connection = self.store.lend()
            try:
                self.connection.begin(self.store.settings.lock_timeout)
            except BaseException:
                self.give_back()
                raise
        return self

    def run(self, op: Op[T]) -> T:
        if not self.connection.in_transaction:
            raise _ended_early()
        with sqlite.understood():
            return run_on(self.connection, self.store, op)

    def commit(self) -> None:
        with sqlite.understood():
            try:
                self.connection.execute("COMMIT")
            except sqlite3.Error:
                self._roll_back()  # or we would be in the way of whoever looks what became of it
                raise
            self.store.committed(self.connection)

    def give_back(self) -> None:
        self._roll_back()
        self.store.take_back(self.connection)

    def _roll_back(self) -> None:
        with suppress(sqlite3.Error):  # SQLite may have rolled back, and a fork have closed it
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")


@contextmanager
def _lend_sqlite(store: Store) -> Iterator[Lent]:
    lent = SqliteLent(store).begin()
    try:
        yield lent
    finally:
        lent.give_back()


class AsyncSqliteLent:
    """What may wait for a lock or for the disk does so in a thread."""

    def __init__(self, lent: SqliteLent) -> None:
        self.lent, self.connection = lent, lent.connection

    async def run(self, op: Op[T]) -> T:
        return await asyncio.to_thread(self.lent.run, op)

    async def commit(self) -> None:
        await asyncio.to_thread(self.lent.commit)


@asynccontextmanager
async def _alend_sqlite(store: Store) -> AsyncIterator[AsyncLent]:
    lent = SqliteLent(store)
    try:
        await settled(asyncio.to_thread(lent.begin))
        yield AsyncSqliteLent(lent)
    finally:
        if hasattr(lent, "connection"):
            lent.give_back()


# PostgreSQL. Inside of its `transaction()`, psycopg refuses to commit or to roll back.


class PostgresLent:
    def __init__(self, store: Any, link: Any) -> None:
        self.store, self.connection = store, link
        self.transaction = link.transaction()
        self.open = False

    def begin(self) -> None:
        with _understood():
            self.transaction.__enter__()
            self.open = True
            for term in self.store.terms():
                self.connection.execute(term)

    def run(self, op: Op[T]) -> T:
        _check_open(self.connection)
        with _understood():
            return run_on(self.connection, self.store, op)

    def commit(self) -> None:
        self.open = False
        with _understood():
            self.transaction.__exit__(None, None, None)

    def roll_back(self) -> None:
        if self.open:
            self.open = False
            with suppress(Exception):  # whatever went wrong, the connection is not used again
                self.transaction.__exit__(*_TAKEN_BACK)


@contextmanager
def _lend_postgres(store: Any) -> Iterator[Lent]:
    with ExitStack() as stack:
        yield store.insist(lambda: _begun(store, stack))


def _begun(store: Any, stack: ExitStack) -> PostgresLent:
    """One that had been idle may be found broken: then so may the others be."""
    with ExitStack() as own:
        lent = PostgresLent(store, _as_new(own.enter_context(store.guests.threads.lend())))
        own.callback(lent.roll_back)
        try:
            lent.begin()
        except StoreUnavailable:
            store.guests.threads.clear()
            raise
        stack.push(own.pop_all())
        return lent


class AsyncPostgresLent:
    """The same, awaited."""

    def __init__(self, store: Any, link: Any) -> None:
        self.store, self.connection = store, link
        self.transaction = link.transaction()
        self.open = False

    async def begin(self) -> None:
        with _understood():
            await self.transaction.__aenter__()
            self.open = True
            for term in self.store.terms():
                await self.connection.execute(term)

    async def run(self, op: Op[T]) -> T:
        _check_open(self.connection)
        with _understood():
            return await arun_on(self.connection, self.store, op)

    async def commit(self) -> None:
        self.open = False
        with _understood():
            await self.transaction.__aexit__(None, None, None)

    async def roll_back(self) -> None:
        if self.open:
            self.open = False
            with suppress(Exception):
                await self.transaction.__aexit__(*_TAKEN_BACK)


@asynccontextmanager
async def _alend_postgres(store: Any) -> AsyncIterator[AsyncLent]:
    async with AsyncExitStack() as stack:
        yield await store.ainsist(lambda: _abegun(store, stack))


async def _abegun(store: Any, stack: AsyncExitStack) -> AsyncPostgresLent:
    pool = store.guests.mine()
    async with AsyncExitStack() as own:
        lent = AsyncPostgresLent(store, _as_new(await own.enter_async_context(pool.lend())))
        own.push_async_callback(lent.roll_back)
        try:
            await lent.begin()
        except StoreUnavailable:
            await pool.clear()
            raise
        stack.push_async_exit(own.pop_all())
        return lent


_TAKEN_BACK = (RuntimeError, RuntimeError("taken back"), None)


def _understood() -> AbstractContextManager[None]:
    from .postgres_errors import understood

    return understood()


def _as_new(link: Any) -> Any:
    from psycopg.rows import tuple_row

    link.row_factory = tuple_row
    return link


def _check_open(link: Any) -> None:
    from psycopg.pq import TransactionStatus

    if link.info.transaction_status == TransactionStatus.IDLE:
        raise _ended_early()


def _ended_early() -> WrongConnection:
    return WrongConnection(
        reason="the transaction of completing() was ended inside of its block, and the job is not"
        " finished: leave BEGIN, COMMIT and ROLLBACK to it"
    )
