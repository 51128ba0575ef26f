"""The caller's own connection: a job exists if, and only if, the caller's transaction commits.

    sqlite3        Connection
    psycopg 3      Connection, AsyncConnection
    asyncpg        Connection, and what its pool lends
    SQLAlchemy 2   Session, Connection, AsyncSession, AsyncConnection, scoped_session
    Django         django.db.connection, connections["…"]

None of these libraries is imported here: a connection is known by the module of its class. What an
operation wants undone as a whole is put in a savepoint, so a refused call leaves the caller's
transaction as it was. Nothing is ever committed here that the caller did not ask to be.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    contextmanager,
)
from typing import Any, TypeVar

from ..model.errors import WrongConnection
from ..ops.statement import Begin, Op, Rows, Statement, Step, Together
from . import sqlite
from .base import Store
from .postgres_text import parameters, psycopg_text
from .runner import adrive, drive
from .statements import POSTGRES, SQLITE, Query

T = TypeVar("T")


def run_on(connection: Any, store: Store, op: Op[T]) -> T:
    """Carry out an operation on a caller's blocking connection."""
    kind = _KINDS.get(_family(connection))
    if kind is None:
        raise WrongConnection(reason=_unknown(connection))
    if _is_async(connection):
        raise WrongConnection(
            reason="this is an asyncio connection: use the verb with an a (await task.aenqueue(…))"
        )
    return drive(op, kind(connection, store))


async def arun_on(connection: Any, store: Store, op: Op[T]) -> T:
    """Carry out an operation on a caller's asyncio connection (or sqlite3, which never waits)."""
    family = _family(connection)
    if family == "asyncpg":
        return await adrive(op, AsyncpgSession(connection, store))
    if family == "psycopg" and _is_async(connection):
        return await adrive(op, AsyncPsycopgSession(connection, store))
    if family == "sqlalchemy" and _is_async(connection):
        return await connection.run_sync(lambda inner: run_on(inner, store, op))  # type: ignore[no-any-return]
    if family == "sqlite3":
        return run_on(connection, store, op)
    if family in _KINDS:
        raise WrongConnection(
            reason="this connection blocks: use the verb without an a (task.enqueue(…)), or give"
            " an asyncio connection"
        )
    raise WrongConnection(reason=_unknown(connection))


class CallerSession:
    """An operation in somebody else's transaction."""

    def __init__(self, connection: Any, store: Store) -> None:
        self.connection = connection
        self.queries = store.queries
        self.stack = ExitStack()
        _same_database(self.dialect(), store)

    def __enter__(self) -> CallerSession:
        self.nested = False
        return self

    def __exit__(self, *error: Any) -> None:
        self.stack.__exit__(*error)

    def answer(self, step: Step) -> Any:
        if isinstance(step, Begin):
            if not self.nested:
                self.stack.enter_context(self.savepoint())
                self.nested = True
            return None
        if isinstance(step, Together):
            return [self.answer(statement) for statement in step]
        return self.execute(self.queries[step.name], step)

    def dialect(self) -> str:
        raise NotImplementedError

    def savepoint(self) -> AbstractContextManager[Any]:
        raise NotImplementedError

    def execute(self, query: Query, statement: Statement) -> Rows:
        raise NotImplementedError


class Sqlite3Session(CallerSession):
    def dialect(self) -> str:
        return SQLITE

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        connection: sqlite3.Connection = self.connection
        alone = not connection.in_transaction
        if alone:
            connection.execute("BEGIN IMMEDIATE")
        connection.execute("SAVEPOINT outlast")
        try:
            yield
        except BaseException:
            connection.execute("ROLLBACK TO outlast")
            raise
        finally:
            connection.execute("RELEASE outlast")
            # Only a connection that commits every statement by itself wants this one committed.
            if alone and connection.isolation_level is None:
                connection.execute("COMMIT")

    def execute(self, query: Query, statement: Statement) -> Rows:
        cursor = self.connection.cursor()
        cursor.row_factory = None
        return sqlite.run(cursor, query, statement)


class PsycopgSession(CallerSession):
    def dialect(self) -> str:
        return POSTGRES

    def savepoint(self) -> AbstractContextManager[Any]:
        # On an idle connection that does not commit by itself, transaction() would commit: make
        # sure that the caller's transaction has begun, then it is a savepoint.
        if not self.connection.autocommit:
            self.connection.execute("SELECT 1")
        return self.connection.transaction()  # type: ignore[no-any-return]

    def execute(self, query: Query, statement: Statement) -> Rows:
        with _plain_cursor(self.connection) as cursor:
            cursor.execute(psycopg_text(query), parameters(statement))
            return cursor.fetchall() if cursor.description else []


class SqlalchemySession(CallerSession):
    def __init__(self, connection: Any, store: Store) -> None:
        self.inner = connection.connection() if hasattr(connection, "get_bind") else connection
        super().__init__(connection, store)

    def dialect(self) -> str:
        return _our_name(self.inner.dialect.name)

    def savepoint(self) -> AbstractContextManager[Any]:
        return self.connection.begin_nested()  # type: ignore[no-any-return]

    def execute(self, query: Query, statement: Statement) -> Rows:
        if self.dialect() == SQLITE and statement.rows is not None:
            found = [self._one(query, {**statement.params, **row}) for row in statement.rows]
            return [row for rows in found for row in rows]
        return self._one(query, parameters(statement))

    def _one(self, query: Query, given: dict[str, Any]) -> Rows:
        from sqlalchemy import text

        result = self.inner.execute(text(query.sql), given)
        return [tuple(row) for row in result] if result.returns_rows else []


class DjangoSession(CallerSession):
    def dialect(self) -> str:
        return _our_name(self.connection.vendor)

    def savepoint(self) -> AbstractContextManager[Any]:
        from django.db import transaction

        return transaction.atomic(using=self.connection.alias)  # type: ignore[no-any-return]

    def execute(self, query: Query, statement: Statement) -> Rows:
        if self.dialect() == SQLITE and statement.rows is not None:
            found = [self._one(query, {**statement.params, **row}) for row in statement.rows]
            return [row for rows in found for row in rows]
        return self._one(query, parameters(statement))

    def _one(self, query: Query, given: dict[str, Any]) -> Rows:
        with self.connection.cursor() as cursor:
            cursor.execute(psycopg_text(query), given)
            return [tuple(row) for row in cursor.fetchall()] if cursor.description else []


class AsyncCallerSession:
    """The same, awaited."""

    def __init__(self, connection: Any, store: Store) -> None:
        self.connection = connection
        self.queries = store.queries
        self.stack = AsyncExitStack()
        self.nested = False
        _same_database(POSTGRES, store)

    async def __aenter__(self) -> AsyncCallerSession:
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.stack.__aexit__(*error)

    async def answer(self, step: Step) -> Any:
        if isinstance(step, Begin):
            if not self.nested:
                await self.stack.enter_async_context(await self.savepoint())
                self.nested = True
            return None
        if isinstance(step, Together):
            return [await self.answer(statement) for statement in step]
        return await self.execute(self.queries[step.name], step)

    async def savepoint(self) -> AbstractAsyncContextManager[Any]:
        raise NotImplementedError

    async def execute(self, query: Query, statement: Statement) -> Rows:
        raise NotImplementedError


class AsyncPsycopgSession(AsyncCallerSession):
    async def savepoint(self) -> AbstractAsyncContextManager[Any]:
        if not self.connection.autocommit:  # as in PsycopgSession
            await self.connection.execute("SELECT 1")
        return self.connection.transaction()  # type: ignore[no-any-return]

    async def execute(self, query: Query, statement: Statement) -> Rows:
        async with _plain_cursor(self.connection) as cursor:
            await cursor.execute(psycopg_text(query), parameters(statement))
            return await cursor.fetchall() if cursor.description else []


class AsyncpgSession(AsyncCallerSession):
    async def savepoint(self) -> AbstractAsyncContextManager[Any]:
        return self.connection.transaction()  # type: ignore[no-any-return]

    async def execute(self, query: Query, statement: Statement) -> Rows:
        given = parameters(statement)
        text = query.spelled(lambda name: f"${query.parameters.index(name) + 1}")
        rows = await self.connection.fetch(text, *(given[name] for name in query.parameters))
        return [tuple(row) for row in rows]


_KINDS: dict[str, type[CallerSession]] = {
    "sqlite3": Sqlite3Session,
    "psycopg": PsycopgSession,
    "sqlalchemy": SqlalchemySession,
    "django": DjangoSession,
}


def _our_name(dialect: str) -> str:
    return POSTGRES if dialect == "postgresql" else dialect


def _family(connection: Any) -> str:
    for cls in type(connection).__mro__:
        family = cls.__module__.partition(".")[0]
        if family in {"sqlite3", "psycopg", "asyncpg", "sqlalchemy", "django"}:
            return family
    return type(connection).__module__


def _is_async(connection: Any) -> bool:
    return any("Async" in cls.__name__ for cls in type(connection).__mro__) or (
        _family(connection) == "asyncpg"
    )


def _same_database(dialect: str, store: Store) -> None:
    if dialect != store.address.dialect:
        raise WrongConnection(
            reason=f"the connection given is for {dialect}, but jobs are kept in {store.address}:"
            " they can only commit together in one database"
        )


def _plain_cursor(connection: Any) -> Any:
    from psycopg.rows import tuple_row

    return connection.cursor(row_factory=tuple_row)


def _unknown(connection: Any) -> str:
    kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
    return (
        f"a {kind} cannot carry jobs: give a connection or session of sqlite3, psycopg 3, asyncpg,"
        " SQLAlchemy 2 or Django"
    )
