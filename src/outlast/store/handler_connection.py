"""A connection lent to a handler, in an open transaction: the handler's writes, then the
completion.

It is exclusive: on PostgreSQL it comes from a separate pool, so that a slow handler does not block
its worker and its session settings stay there; on SQLite it is a new connection. Without `commit`,
nothing is written.
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
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from ..model.errors import StoreUnavailable, WrongConnection
from ..ops.operation import Op
from .base import Store
from .caller.connection import arun_on, run_on
from .dialects import SQLITE
from .sqlite import connection as sqlite
from .sqlite.guarded_connection import GuardedConnection
from .uncancelled import uncancelled

if TYPE_CHECKING:
    from .postgres.connection import AsyncDeadlineConnection, DeadlineConnection
    from .postgres.store import PostgresStore
    from .sqlite.store import SqliteStore

    Link = TypeVar("Link", DeadlineConnection, AsyncDeadlineConnection)

T = TypeVar("T")


class HandlerTransaction(Protocol):
    connection: Any

    def run(self, op: Op[T]) -> T: ...

    def commit(self) -> None: ...


class AsyncHandlerTransaction(Protocol):
    connection: Any

    async def run(self, op: Op[T]) -> T: ...

    async def commit(self) -> None: ...


def open_transaction(store: Store) -> AbstractContextManager[HandlerTransaction]:
    """A transaction for a handler in a thread."""
    store.ready()
    return _open_sqlite(store) if store.address.dialect == SQLITE else _open_postgres(store)


@asynccontextmanager
async def aopen_transaction(store: Store) -> AsyncIterator[AsyncHandlerTransaction]:
    """A transaction for a handler in an event loop."""
    await store.aready()
    kind = _aopen_sqlite if store.address.dialect == SQLITE else _aopen_postgres
    opening: AbstractAsyncContextManager[AsyncHandlerTransaction] = kind(store)
    async with opening as transaction:
        yield transaction


# SQLite


class SqliteHandlerTransaction:
    connection: GuardedConnection

    def __init__(self, store: SqliteStore) -> None:
        self.store = store

    def begin(self) -> SqliteHandlerTransaction:
        with sqlite.translate_errors():
            self.connection = self.store.borrow()
            try:
                self.connection.begin(self.store.settings.lock_timeout)
            except BaseException:
                self.close()
                raise
        return self

    def run(self, op: Op[T]) -> T:
        if not self.connection.in_transaction:
            raise _ended_early()
        with sqlite.translate_errors():
            return run_on(self.connection, self.store, op)

    def commit(self) -> None:
        with sqlite.translate_errors():
            try:
                self.connection.execute("COMMIT")
            except sqlite3.Error:
                self._roll_back()  # otherwise it would block the check of its outcome
                raise
            self.store.committed(self.connection)

    def close(self) -> None:
        self._roll_back()
        self.store.return_borrowed(self.connection)

    def _roll_back(self) -> None:
        with suppress(sqlite3.Error):  # SQLite may have rolled back, or a fork closed it
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")


@contextmanager
def _open_sqlite(store: Store) -> Iterator[HandlerTransaction]:
    transaction = SqliteHandlerTransaction(cast("SqliteStore", store)).begin()
    try:
        yield transaction
    finally:
        transaction.close()


class AsyncSqliteHandlerTransaction:
    """The asyncio counterpart: calls that may wait for a lock or the disk run in a thread."""

    def __init__(self, inner: SqliteHandlerTransaction) -> None:
        self.inner, self.connection = inner, inner.connection

    async def run(self, op: Op[T]) -> T:
        return await asyncio.to_thread(self.inner.run, op)

    async def commit(self) -> None:
        await asyncio.to_thread(self.inner.commit)


@asynccontextmanager
async def _aopen_sqlite(store: Store) -> AsyncIterator[AsyncHandlerTransaction]:
    transaction = SqliteHandlerTransaction(cast("SqliteStore", store))
    try:
        await uncancelled(asyncio.to_thread(transaction.begin))
        yield AsyncSqliteHandlerTransaction(transaction)
    finally:
        if hasattr(transaction, "connection"):
            transaction.close()


# PostgreSQL. Inside of its `transaction()`, psycopg refuses to commit or to roll back.


class PostgresHandlerTransaction:
    def __init__(self, store: PostgresStore, link: DeadlineConnection) -> None:
        self.store, self.connection = store, link
        self.transaction = link.transaction()
        self.open = False

    def begin(self) -> None:
        with _translate_postgres_errors():
            self.transaction.__enter__()
            self.open = True
            for term in self.store.transaction_settings():
                self.connection.execute(term)

    def run(self, op: Op[T]) -> T:
        _check_open(self.connection)
        with _translate_postgres_errors():
            return run_on(self.connection, self.store, op)

    def commit(self) -> None:
        self.open = False
        with _translate_postgres_errors():
            self.transaction.__exit__(None, None, None)

    def roll_back(self) -> None:
        if self.open:
            self.open = False
            with suppress(Exception):  # after an error the connection is not used again
                self.transaction.__exit__(*_ROLLBACK)


@contextmanager
def _open_postgres(store: Store) -> Iterator[HandlerTransaction]:
    postgres = cast("PostgresStore", store)
    with ExitStack() as stack:
        yield store.retrying(lambda: _begin_postgres(postgres, stack))


def _begin_postgres(store: PostgresStore, stack: ExitStack) -> PostgresHandlerTransaction:
    """Begin on a pooled connection. If an idle one is found broken, the others are suspect, too."""
    with ExitStack() as own:
        transaction = PostgresHandlerTransaction(
            store, _as_new(own.enter_context(store.handler_pool.threads.acquire()))
        )
        own.callback(transaction.roll_back)
        try:
            transaction.begin()
        except StoreUnavailable:
            store.handler_pool.threads.clear()
            raise
        stack.push(own.pop_all())
        return transaction


class AsyncPostgresHandlerTransaction:
    """The asyncio counterpart."""

    def __init__(self, store: PostgresStore, link: AsyncDeadlineConnection) -> None:
        self.store, self.connection = store, link
        self.transaction = link.transaction()
        self.open = False

    async def begin(self) -> None:
        with _translate_postgres_errors():
            await self.transaction.__aenter__()
            self.open = True
            for term in self.store.transaction_settings():
                await self.connection.execute(term)

    async def run(self, op: Op[T]) -> T:
        _check_open(self.connection)
        with _translate_postgres_errors():
            return await arun_on(self.connection, self.store, op)

    async def commit(self) -> None:
        self.open = False
        with _translate_postgres_errors():
            await self.transaction.__aexit__(None, None, None)

    async def roll_back(self) -> None:
        if self.open:
            self.open = False
            with suppress(Exception):
                await self.transaction.__aexit__(*_ROLLBACK)


@asynccontextmanager
async def _aopen_postgres(store: Store) -> AsyncIterator[AsyncHandlerTransaction]:
    postgres = cast("PostgresStore", store)
    async with AsyncExitStack() as stack:
        yield await store.aretrying(lambda: _abegin_postgres(postgres, stack))


async def _abegin_postgres(
    store: PostgresStore, stack: AsyncExitStack
) -> AsyncPostgresHandlerTransaction:
    pool = store.handler_pool.loop_pool()
    async with AsyncExitStack() as own:
        transaction = AsyncPostgresHandlerTransaction(
            store, _as_new(await own.enter_async_context(pool.acquire()))
        )
        own.push_async_callback(transaction.roll_back)
        try:
            await transaction.begin()
        except StoreUnavailable:
            await pool.clear()
            raise
        stack.push_async_exit(own.pop_all())
        return transaction


_ROLLBACK = (RuntimeError, RuntimeError("rolled back"), None)


def _translate_postgres_errors() -> AbstractContextManager[None]:
    from .postgres.errors import translate_errors

    return translate_errors()


def _as_new(link: Link) -> Link:
    from psycopg.rows import tuple_row

    link.row_factory = tuple_row
    return link


def _check_open(link: DeadlineConnection | AsyncDeadlineConnection) -> None:
    from psycopg.pq import TransactionStatus

    if link.info.transaction_status == TransactionStatus.IDLE:
        raise _ended_early()


def _ended_early() -> WrongConnection:
    return WrongConnection(
        reason="the transaction of completing() was ended inside of its block, and the job is not"
        " finished: leave BEGIN, COMMIT and ROLLBACK to it"
    )
