"""The databases a test runs on: a fresh SQLite file, or a schema in PostgreSQL of its own."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tests.support.pgbouncer import PgBouncer
from tests.support.postgres import Postgres

if TYPE_CHECKING:
    from tests.support.schemas import Schemas

Kind = Literal["sqlite", "postgres", "pgbouncer"]
KINDS: tuple[Kind, ...] = ("sqlite", "postgres", "pgbouncer")


@dataclass(frozen=True)
class Database:
    """Where one test's rows live: `Outlast(database.url, schema=database.schema)`."""

    url: str
    schema: str
    kind: Kind
    direct_url: str
    """The same place without the pooler; equal to `url` for the other kinds."""

    @property
    def is_sqlite(self) -> bool:
        return self.kind == "sqlite"

    @property
    def path(self) -> Path:
        """The file of a SQLite database."""
        assert self.is_sqlite, f"{self.kind} has no file"
        return Path(self.url.removeprefix("sqlite:///"))

    @contextmanager
    def connect(self) -> Iterator[Any]:
        """A plain driver connection, past the product and the pooler, autocommitted.

        PostgreSQL's search path starts with the schema.
        """
        if self.is_sqlite:
            with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
                yield connection
        else:
            import psycopg

            options = f"-c search_path={self.schema},public"
            with psycopg.connect(self.direct_url, autocommit=True, options=options) as connection:
                yield connection

    def rows(self, query: str, params: Any = ()) -> list[tuple[Any, ...]]:
        """The rows of one statement, on a connection of its own."""
        with self.connect() as connection:
            cursor = connection.execute(query, params)
            return [tuple(row) for row in cursor.fetchall()] if cursor.description else []


def sqlite_database(folder: Path) -> Database:
    url = f"sqlite:///{folder / 'outlast.db'}"
    return Database(url, "outlast", "sqlite", url)


@contextmanager
def postgres_database(server: Postgres, pooler: PgBouncer | None = None) -> Iterator[Database]:
    """A schema name that nobody else uses. The product creates it; we drop it."""
    # Here: a process that works on SQLite starts in half the time without the driver.
    from tests.support.schemas import drop_schema, new_name

    schema = new_name()
    with _reached(server, schema, pooler) as database:
        yield database
    if server.running:
        drop_schema(server, schema)


@contextmanager
def lent_database(schemas: Schemas, pooler: PgBouncer | None = None) -> Iterator[Database]:
    """A schema with our tables, empty: it may have been another test's before."""
    with schemas.lend() as schema, _reached(schemas.server, schema, pooler) as database:
        yield database


@contextmanager
def _reached(server: Postgres, schema: str, pooler: PgBouncer | None) -> Iterator[Database]:
    direct = server.url()
    if pooler is None:
        yield Database(direct, schema, "postgres", direct)
    else:
        yield Database(pooler.url(), schema, "pgbouncer", direct)
        pooler.end_sessions()
