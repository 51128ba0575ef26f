"""The caller's own connection: a job exists if, and only if, the caller's transaction commits.

    sqlite3        Connection
    psycopg 3      Connection, AsyncConnection
    asyncpg        Connection, and what its pool lends
    SQLAlchemy 2   Session, Connection, AsyncSession, AsyncConnection, scoped and async scoped ones
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
    suppress,
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
    if _is_async(connection):
        raise WrongConnection(
            reason="this is an asyncio connection: use the verb with an a (await task.aenqueue(…))"
        )
    kind = _KINDS.get(_family(connection))
    if kind is None:
        raise WrongConnection(reason=_unknown(connection))
    return drive(op, kind(connection, store))


async def arun_on(connection: Any, store: Store, op: Op[T]) -> T:
    """Carry out an operation on a caller's asyncio connection (or sqlite3, which never waits)."""
    family = _family(connection)
    if family == "asyncpg":
        return await adrive(op, AsyncpgSession(connection, store))
    if family == "psycopg" and _is_async(connection):
        return await adrive(op, AsyncPsycopgSession(connection, store))
    if family == "sqlalchemy" and _is_async(connection):
        if not hasattr(connection, "run_sync"):
            connection = connection()  # an async_scoped_session stands for its session
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
            self._nest()
            return None
        if isinstance(step, Together):
            return [self.answer(statement) for statement in step]
        if step.rows is not None and self.dialect() == SQLITE:
            self._nest()  # row by row there: only so are they inserted all or none
        return self.execute(self.queries[step.name], step)

    def _nest(self) -> None:
        if not self.nested:
            self.stack.enter_context(self.savepoint())
            self.nested = True

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
            with suppress(sqlite3.Error):  # SQLite may have rolled back by itself
                connection.execute("ROLLBACK" if alone else "ROLLBACK TO outlast")
                connection.execute("RELEASE outlast")
            raise
        connection.execute("RELEASE outlast")
        if alone and _commits_by_itself(connection):
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
            # Asked of the statement: in the caller's pipeline the cursor does not know yet.
            return cursor.fetchall() if query.answers else []


class SqlalchemySession(CallerSession):
    def __init__(self, connection: Any, store: Store) -> None:
        self.inner = connection.connection() if hasattr(connection, "get_bind") else connection
        super().__init__(connection, store)

    def dialect(self) -> str:
        return _our_name(self.inner.dialect.name)

    def savepoint(self) -> AbstractContextManager[Any]:
        if not _in_transaction(self.inner.connection.driver_connection):
            if self._autocommits():
                return self._transaction()
            if self.dialect() == SQLITE:
                # SQLAlchemy believes in a transaction that sqlite3 begins only at the first write.
                # Until then a savepoint would be all of it, and its release a commit.
                self.inner.exec_driver_sql("BEGIN IMMEDIATE")
        # Not the session's own begin_nested: that one says SAVEPOINT only when it is used.
        return self.inner.begin_nested()  # type: ignore[no-any-return]

    def _autocommits(self) -> bool:
        adapted = self.inner.connection.dbapi_connection
        if self.dialect() == SQLITE:
            return _commits_by_itself(self.inner.connection.driver_connection)
        return getattr(adapted, "autocommit", False) is True

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Isolation level AUTOCOMMIT: SQLAlchemy's own begin and commit mean nothing there."""
        self.inner.exec_driver_sql("BEGIN")
        try:
            yield
        except BaseException:
            self.inner.exec_driver_sql("ROLLBACK")
            raise
        self.inner.exec_driver_sql("COMMIT")

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
            return await cursor.fetchall() if query.answers else []


class AsyncpgSession(AsyncCallerSession):
    async def savepoint(self) -> AbstractAsyncContextManager[Any]:
        return self.connection.transaction()  # type: ignore[no-any-return]

    async def execute(self, query: Query, statement: Statement) -> Rows:
        given = parameters(statement)
        # Every parameter is text, and says so: one that is json goes through the codec that the
        # caller may have set for json, which would encode it once more.
        text = query.spelled(lambda name: f"CAST(${query.parameters.index(name) + 1} AS text)")
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
    names = [cls.__name__.lower() for cls in type(connection).__mro__]
    return _family(connection) == "asyncpg" or any("async" in name for name in names)


def _in_transaction(driver: Any) -> bool:
    """Whether a connection is in a transaction, by its driver's own word."""
    if hasattr(driver, "in_transaction"):
        return bool(driver.in_transaction)  # sqlite3, aiosqlite
    if hasattr(driver, "is_in_transaction"):
        return bool(driver.is_in_transaction())  # asyncpg
    return bool(driver.info.transaction_status != 0)  # psycopg: 0 is idle


def _commits_by_itself(connection: Any) -> bool:
    """Whether a sqlite3 connection commits every statement that is in no transaction."""
    mode = getattr(connection, "autocommit", None)  # since Python 3.12; may be "as it was before"
    return mode if isinstance(mode, bool) else connection.isolation_level is None


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
