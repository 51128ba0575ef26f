"""Every kind of connection a caller may bring, each in the same few words.

A `Caller` opens a connection the way applications do. `enqueue` puts a job on it; `commit`,
`rollback` and `write` (a business row) are the caller's own. These block; see `async_callers`.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from outlast import Job, Outlast
from outlast.model.task import Call
from tests.support import Database

WRITE = "INSERT INTO business (note) VALUES ('x')"


class Caller:
    """A blocking connection; the others say where they differ."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.connection = self.open()

    def open(self) -> Any:
        raise NotImplementedError

    def enqueue(self, app: Outlast, *calls: Call) -> list[Job]:
        return app.enqueue(*calls, conn=self.connection)

    def act(self, app: Outlast, verb: str, id: str) -> Any:
        return getattr(app, verb)(id, conn=self.connection)

    def execute(self, sql: str) -> Any:
        return self.connection.execute(sql)

    def write(self) -> None:
        self.execute(WRITE)

    def commit(self) -> None:
        self.connection.commit()

    def rollback(self) -> None:
        self.connection.rollback()

    def close(self) -> None:
        self.connection.close()


class Sqlite3(Caller):
    def open(self) -> Any:
        return sqlite3.connect(self.database.path)


class Sqlite3ByHand(Caller):
    """isolation_level=None, and BEGIN said by the caller."""

    def open(self) -> Any:
        connection = sqlite3.connect(self.database.path, isolation_level=None)
        connection.execute("BEGIN")
        return connection


class Sqlite3Dicts(Caller):
    """Rows as dicts, by the recipe that everybody copies."""

    def open(self) -> Any:
        connection = sqlite3.connect(self.database.path, isolation_level="IMMEDIATE")
        connection.row_factory = lambda cursor, row: {
            column[0]: value for column, value in zip(cursor.description, row, strict=True)
        }
        return connection


class Psycopg(Caller):
    def open(self) -> Any:
        import psycopg

        return psycopg.connect(self.database.direct_url)


class PsycopgDicts(Caller):
    def open(self) -> Any:
        import psycopg
        from psycopg.rows import dict_row

        return psycopg.connect(self.database.direct_url, row_factory=dict_row)


class PsycopgBlock(Caller):
    """autocommit, and the transaction is a `with connection.transaction()` block."""

    def open(self) -> Any:
        import psycopg

        connection = psycopg.connect(self.database.direct_url, autocommit=True)
        self.block = connection.transaction()
        self.block.__enter__()
        return connection

    def commit(self) -> None:
        self.block.__exit__(None, None, None)

    def rollback(self) -> None:
        import psycopg

        gone = psycopg.Rollback()
        self.block.__exit__(type(gone), gone, None)


class SqlalchemyConnection(Caller):
    def engine(self) -> Any:
        from sqlalchemy import create_engine

        return create_engine(alchemy_url(self.database, "psycopg", "pysqlite"))

    def open(self) -> Any:
        self.made = self.engine()
        return self.made.connect()

    def execute(self, sql: str) -> Any:
        from sqlalchemy import text

        return self.connection.execute(text(sql))

    def close(self) -> None:
        super().close()
        self.made.dispose()


class SqlalchemySession(SqlalchemyConnection):
    def open(self) -> Any:
        from sqlalchemy.orm import Session

        self.made = self.engine()
        return Session(self.made)


class SqlalchemyScoped(SqlalchemyConnection):
    def open(self) -> Any:
        from sqlalchemy.orm import scoped_session, sessionmaker

        self.made = self.engine()
        return scoped_session(sessionmaker(self.made))

    def close(self) -> None:
        self.connection.remove()
        self.made.dispose()


class Django(Caller):
    """A transaction.atomic() block."""

    def open(self) -> Any:
        from django.db import transaction

        from tests.store.django_connection import connection_for

        self.wrapper, proxy = connection_for(self.database)
        self.block = transaction.atomic(using=self.wrapper.alias)
        self.block.__enter__()
        return proxy

    def execute(self, sql: str) -> Any:
        with self.wrapper.cursor() as cursor:
            cursor.execute(sql)
            return cursor

    def commit(self) -> None:
        self.block.__exit__(None, None, None)

    def rollback(self) -> None:
        self.wrapper.set_rollback(True)
        self.block.__exit__(None, None, None)

    def close(self) -> None:
        self.wrapper.close()


def alchemy_url(database: Database, postgres: str, sqlite: str) -> str:
    if database.is_sqlite:
        return database.url.replace("sqlite://", f"sqlite+{sqlite}://", 1)
    return database.direct_url.replace("postgresql://", f"postgresql+{postgres}://", 1)
