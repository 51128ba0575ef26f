"""Connections that a framework has wrapped: SQLAlchemy's and Django's, on either database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from ...model.errors import WrongConnection
from ...ops.operation import Rows, Statement
from ..base import Store
from ..dialects import POSTGRES, SQLITE
from ..postgres.paramstyle import psycopg_text
from ..statements import Query
from .session import CallerSession, commits_by_itself


class SqlalchemySession(CallerSession):
    def __init__(self, connection: Any, store: Store) -> None:
        self.inner = _connection_of(connection)
        super().__init__(connection, store)

    def dialect(self) -> str:
        return _our_name(self.inner.dialect.name)

    def driver(self) -> Any:
        return self.inner.connection.driver_connection

    def savepoint(self) -> AbstractContextManager[object]:
        if not _in_transaction(self.inner.connection.driver_connection):
            if self._autocommits():
                return self._transaction()
            if self.dialect() == SQLITE:
                # SQLAlchemy assumes a transaction that sqlite3 begins only at the first write.
                # Until then a savepoint would be the outermost one, and its release a commit.
                self.inner.exec_driver_sql("BEGIN IMMEDIATE")
        # Not the session's own begin_nested: it sends SAVEPOINT only on its first use.
        return self.inner.begin_nested()  # type: ignore[no-any-return]

    def _autocommits(self) -> bool:
        adapted = self.inner.connection.dbapi_connection
        if self.dialect() == SQLITE:
            return commits_by_itself(self.inner.connection.driver_connection)
        return getattr(adapted, "autocommit", False) is True

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Isolation level AUTOCOMMIT: SQLAlchemy's own begin and commit have no effect."""
        self.inner.exec_driver_sql("BEGIN")
        try:
            yield
        except BaseException:
            self.inner.exec_driver_sql("ROLLBACK")
            raise
        self.inner.exec_driver_sql("COMMIT")

    def execute(self, query: Query, statement: Statement) -> Rows:
        from sqlalchemy import text

        result = self.inner.execute(text(query.sql), statement.bind)
        return [tuple(row) for row in result] if result.returns_rows else []


def _connection_of(given: Any) -> Any:
    """The connection of a session; a connection itself."""
    if not hasattr(given, "get_bind"):
        return given
    from sqlalchemy.exc import UnboundExecutionError

    try:
        return given.connection()
    except UnboundExecutionError as error:
        raise WrongConnection(
            reason="this session is bound to no engine, so it leads to no database: make it with"
            " Session(engine) or sessionmaker(engine)"
        ) from error


class DjangoSession(CallerSession):
    def dialect(self) -> str:
        return _our_name(self.connection.vendor)

    def driver(self) -> Any:
        self.connection.ensure_connection()
        return self.connection.connection

    def savepoint(self) -> AbstractContextManager[object]:
        from django.db import transaction

        return transaction.atomic(using=self.connection.alias)  # type: ignore[no-any-return]

    def execute(self, query: Query, statement: Statement) -> Rows:
        with self.connection.cursor() as cursor:
            cursor.execute(psycopg_text(query), statement.bind)
            return [tuple(row) for row in cursor.fetchall()] if cursor.description else []


def _our_name(dialect: str) -> str:
    return POSTGRES if dialect == "postgresql" else dialect


def _in_transaction(driver: Any) -> bool:
    """Whether a connection is in a transaction, as its driver reports it."""
    if hasattr(driver, "in_transaction"):
        return bool(driver.in_transaction)  # sqlite3, aiosqlite
    if hasattr(driver, "is_in_transaction"):
        return bool(driver.is_in_transaction())  # asyncpg
    return bool(driver.info.transaction_status != 0)  # psycopg: 0 is idle
