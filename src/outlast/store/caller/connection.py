"""The caller's own connection: a job exists, is cancelled or redriven if, and only if, the caller's
transaction commits.

    sqlite3        Connection
    psycopg 3      Connection, AsyncConnection
    asyncpg        Connection, and what its pool lends
    SQLAlchemy 2   Session, Connection, AsyncSession, AsyncConnection, scoped and async scoped ones
    Django         django.db.connection, connections["…"]

None of these libraries is imported here: a connection is recognised by the module of its class.
Each operation runs in a savepoint, so that a refused call leaves the caller's transaction as it
was. Nothing is committed here without the caller's own commit.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    contextmanager,
    suppress,
)
from typing import Any, TypeVar

from ...model.errors import WrongConnection
from ...ops.operation import BulkInsert, Op, Rows, Statement
from ..base import Store
from ..dialects import POSTGRES, SQLITE
from ..postgres.copy_text import copy_lines
from ..postgres.paramstyle import psycopg_text
from ..runner import adrive, drive
from ..sqlite import connection as sqlite
from ..statements import Query
from .errors import translate_caller_errors
from .frameworks import DjangoSession, SqlalchemySession
from .not_a_connection import suggestion_for
from .same_database import database_of_caller, in_our_database, is_known, remember
from .session import AsyncCallerSession, CallerSession, commits_by_itself

T = TypeVar("T")


def run_on(connection: Any, store: Store, op: Op[T]) -> T:
    """Run an operation on a caller's blocking connection."""
    if (advice := suggestion_for(connection)) is not None:
        raise WrongConnection(reason=advice)
    if _is_async(connection):
        raise WrongConnection(
            reason="this is an asyncio connection: use the verb with an a (await task.aenqueue(…),"
            " await ol.acancel(…))"
        )
    kind = _KINDS.get(_family(connection))
    if kind is None:
        raise WrongConnection(reason=_unknown(connection))
    with translate_caller_errors():
        session = kind(connection, store)
        driver = session.driver()
        if is_known(driver, store):
            return drive(op, session)
        ours = None if store.address.dialect == SQLITE else store.run(database_of_caller)
        answer = drive(in_our_database(op, store, ours, driver), session)
    remember(driver, store)
    return answer


async def arun_on(connection: Any, store: Store, op: Op[T]) -> T:
    """Run an operation on a caller's asyncio connection (or sqlite3, which never waits)."""
    if (advice := suggestion_for(connection)) is not None:
        raise WrongConnection(reason=advice)
    family = _family(connection)
    if family == "asyncpg":
        return await _arun(op, AsyncpgSession(connection, store), store)
    if family == "psycopg" and _is_async(connection):
        return await _arun(op, AsyncPsycopgSession(connection, store), store)
    if family == "sqlalchemy" and _is_async(connection):
        if not hasattr(connection, "run_sync"):
            connection = connection()  # an async_scoped_session returns its session
        with translate_caller_errors():
            return await connection.run_sync(lambda inner: run_on(inner, store, op))  # type: ignore[no-any-return]
    if family == "sqlite3":
        return run_on(connection, store, op)
    if family in _KINDS:
        raise WrongConnection(
            reason="this connection blocks: use the verb without an a (task.enqueue(…),"
            " ol.cancel(…)), or give an asyncio connection"
        )
    raise WrongConnection(reason=_unknown(connection))


def can_copy_on(connection: Any) -> bool:
    """Whether `BulkInsert` works on a caller's connection: on psycopg's own, outside of a pipeline.
    The answer for other objects is no; `run_on` tells what is wrong with them."""
    if _family(connection) != "psycopg" or not hasattr(connection, "pgconn"):
        return False
    return bool(connection.pgconn.pipeline_status == 0)


async def _arun(op: Op[T], session: AsyncCallerSession, store: Store) -> T:
    driver = session.driver()
    with translate_caller_errors():
        if is_known(driver, store):
            return await adrive(op, session)
        ours = await store.arun(database_of_caller)
        answer = await adrive(in_our_database(op, store, ours, driver), session)
    remember(driver, store)
    return answer


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
            with suppress(sqlite3.Error):  # SQLite may have rolled back already
                connection.execute("ROLLBACK" if alone else "ROLLBACK TO outlast")
                connection.execute("RELEASE outlast")
            raise
        connection.execute("RELEASE outlast")
        if alone and commits_by_itself(connection):
            connection.execute("COMMIT")

    def execute(self, query: Query, statement: Statement) -> Rows:
        cursor = self.connection.cursor()
        cursor.row_factory = None
        factory = self.connection.text_factory
        if factory is str:
            return sqlite.run(cursor, query, statement)
        self.connection.text_factory = str  # the caller's may be bytes, or anything
        try:
            return sqlite.run(cursor, query, statement)
        finally:
            self.connection.text_factory = factory


class PsycopgSession(CallerSession):
    def dialect(self) -> str:
        return POSTGRES

    def savepoint(self) -> AbstractContextManager[object]:
        # On an idle connection without autocommit, transaction() would commit: make
        # sure that the caller's transaction has begun; then it is a savepoint.
        if not self.connection.autocommit:
            self.begin()
        return self.connection.transaction()  # type: ignore[no-any-return]

    def begin(self) -> None:
        from psycopg import Cursor

        with Cursor(self.connection) as cursor:
            cursor.execute("SELECT 1")

    def execute(self, query: Query, statement: Statement) -> Rows:
        from psycopg import Cursor
        from psycopg.rows import tuple_row

        # Not the caller's cursor class: a raw cursor would not accept these parameters.
        with Cursor(self.connection, row_factory=tuple_row) as cursor:
            cursor.execute(psycopg_text(query), statement.bind)
            # From the statement: in a caller's pipeline the cursor has no description yet.
            return cursor.fetchall() if query.returns_rows else []

    def copy(self, query: Query, step: BulkInsert) -> None:
        from psycopg import Cursor

        with Cursor(self.connection) as cursor, cursor.copy(psycopg_text(query)) as copy:
            for lines in copy_lines(step):
                copy.write(lines)


class AsyncPsycopgSession(AsyncCallerSession):
    async def savepoint(self) -> AbstractAsyncContextManager[object]:
        if not self.connection.autocommit:  # as in PsycopgSession
            await self.begin()
        return self.connection.transaction()  # type: ignore[no-any-return]

    async def begin(self) -> None:
        from psycopg import AsyncCursor

        async with AsyncCursor(self.connection) as cursor:
            await cursor.execute("SELECT 1")

    async def execute(self, query: Query, statement: Statement) -> Rows:
        from psycopg import AsyncCursor
        from psycopg.rows import tuple_row

        async with AsyncCursor(self.connection, row_factory=tuple_row) as cursor:  # as above
            await cursor.execute(psycopg_text(query), statement.bind)
            return await cursor.fetchall() if query.returns_rows else []

    async def copy(self, query: Query, step: BulkInsert) -> None:
        from psycopg import AsyncCursor

        async with (
            AsyncCursor(self.connection) as cursor,
            cursor.copy(psycopg_text(query)) as copy,
        ):
            for lines in copy_lines(step):
                await copy.write(lines)


_ASYNCPG_TYPES: dict[type, str] = {bool: "boolean", int: "bigint", float: "double precision"}


class AsyncpgSession(AsyncCallerSession):
    def driver(self) -> Any:
        return getattr(self.connection, "_con", self.connection)  # a pool lends proxies

    async def savepoint(self) -> AbstractAsyncContextManager[object]:
        return self.connection.transaction()  # type: ignore[no-any-return]

    async def execute(self, query: Query, statement: Statement) -> Rows:
        given = statement.bind

        # Every parameter is cast from text, or is a number: a json parameter would pass the json
        # codec that the caller may have set, and be encoded twice.
        def mark(name: str) -> str:
            kind = _ASYNCPG_TYPES.get(type(given[name]), "text")
            return f"CAST(${query.parameters.index(name) + 1} AS {kind})"

        text = query.for_driver(mark)
        rows = await self.connection.fetch(text, *(given[name] for name in query.parameters))
        return [tuple(row) for row in rows]


_KINDS: dict[str, type[CallerSession]] = {
    "sqlite3": Sqlite3Session,
    "psycopg": PsycopgSession,
    "sqlalchemy": SqlalchemySession,
    "django": DjangoSession,
}


def _family(connection: Any) -> str:
    for cls in type(connection).__mro__:
        family = cls.__module__.partition(".")[0]
        if family in {"sqlite3", "psycopg", "asyncpg", "sqlalchemy", "django"}:
            return family
    return type(connection).__module__


def _is_async(connection: Any) -> bool:
    names = [cls.__name__.lower() for cls in type(connection).__mro__]
    return _family(connection) == "asyncpg" or any("async" in name for name in names)


def _unknown(connection: Any) -> str:
    kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
    return (
        f"a {kind} cannot carry jobs: give a connection or session of sqlite3, psycopg 3, asyncpg,"
        " SQLAlchemy 2 or Django"
    )
