"""Temporary schemas or files of a campaign, benchmark or demo, removed when it ends.

Each batch gets a fresh one, so that batches do not interfere and tables stay small.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..store.address import parse
from ..store.dialects import SQLITE

TEMPORARY_FILE = "a temporary SQLite file"
OWN_SERVER = "its own PostgreSQL server"
OWN_SERVER_PAIR = "its own primary and standby"
OWN_CLUSTER = "its own Patroni cluster"
OWN_DATABASES = (TEMPORARY_FILE, OWN_SERVER, OWN_SERVER_PAIR, OWN_CLUSTER)


@dataclass(frozen=True, slots=True)
class Workspace:
    """One set of tables, and the folder of its ledger."""

    url: str = field(repr=False)  # it may hold a password
    schema: str
    folder: Path
    direct_url: str | None = field(default=None, repr=False)  # the URL without the campaign's proxy

    @property
    def ledger_file(self) -> Path:
        return self.folder / "ledger"

    @property
    def ready_file(self) -> Path:
        """File that is written as soon as the tables exist, with facts about the database."""
        return self.folder / "ready"

    @property
    def release_file(self) -> Path:
        """File that is created when holding jobs may end."""
        return self.folder / "opened"

    @property
    def charges_file(self) -> Path:
        """File with the numbers of crashes and failures that jobs were charged."""
        return self.folder / "charges"

    @property
    def verdict_file(self) -> Path:
        """File with the checker's report; it outlives the workspace."""
        return self.folder.with_suffix(".verdict")

    @property
    def is_sqlite(self) -> bool:
        return self.url.startswith("sqlite:")

    def sibling(self, name: str) -> Workspace:
        """Another set of tables, not created yet, with its own ledger."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        if self.is_sqlite:
            return replace(self, url=f"sqlite:///{folder / 'jobs.db'}", folder=folder)
        return replace(self, schema=f"{self.schema}_{name}", folder=folder)

    @contextmanager
    def connect(self) -> Iterator[Any]:
        """A caller's connection to the database of the jobs."""
        if self.is_sqlite:
            path = self.url.removeprefix("sqlite:///")
            with closing(sqlite3.connect(path, timeout=30)) as connection:
                yield connection
        else:
            import psycopg

            with closing(psycopg.connect(self.url)) as connection:
                yield connection

    @contextmanager
    def connect_past_proxy(self) -> Iterator[Any]:
        """A connection past the proxy, without the campaign's faults."""
        with replace(self, url=self.direct_url or self.url).connect() as connection:
            yield connection

    def create_business_table(self) -> None:
        """A table of the caller's own, for rows that commit together with jobs."""
        with self.connect() as connection:
            connection.execute(self._with_name("CREATE TABLE {} (name text PRIMARY KEY)"))
            connection.commit()

    def insert_business_row(self, connection: Any, name: str) -> Any:
        """Insert a row of the caller's own; returns an awaitable for an async connection."""
        with_name = "INSERT INTO {} VALUES (?)" if self.is_sqlite else "INSERT INTO {} VALUES (%s)"
        return connection.execute(self._with_name(with_name), (name,))

    def business_rows(self) -> set[str]:
        with self.connect() as connection:
            rows = connection.execute(self._with_name("SELECT name FROM {}")).fetchall()
            return {name for (name,) in rows}

    def _with_name(self, statement: str) -> Any:
        if self.is_sqlite:
            return statement.replace("{}", "business")
        from psycopg import sql

        return sql.SQL(statement).format(sql.Identifier(self.schema, "business"))

    def remove(self) -> None:
        if not self.is_sqlite:
            remove_schemas(self.url, self.schema)
        shutil.rmtree(self.folder, ignore_errors=True)


class WorkspaceFactory:
    """All workspaces of a run: `outlast_verify_1f3a_1`, …_2, or files in a folder of their own."""

    def __init__(self, url: str | None, schema: str | None = None, command: str = "verify") -> None:
        self.temporary = url is None and not os.environ.get("OUTLAST_URL")
        if self.temporary:
            url = temporary_url()
        self.address = parse(url, schema)
        token = os.urandom(3).hex()
        self.prefix = f"{self.address.schema[:24]}_{command}_{token}"
        self._made = 0
        near = self.address.path.parent if self.address.path else Path(tempfile.gettempdir())
        self.folder = near / f"outlast-{command}-{os.urandom(8).hex()}"  # created with the first

    @property
    def is_sqlite(self) -> bool:
        return self.address.dialect == SQLITE

    def __str__(self) -> str:
        """The database, without its password."""
        return TEMPORARY_FILE if self.temporary else str(self.address)

    def next(self) -> Workspace:
        self._made += 1
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        self.folder.mkdir(mode=0o700, exist_ok=True)
        folder = self.folder / str(self._made)
        folder.mkdir()
        if self.is_sqlite:
            return Workspace(f"sqlite:///{folder / 'jobs.db'}", self.address.schema, folder)
        return Workspace(self.address.url, f"{self.prefix}_{self._made}", folder)

    def remove(self) -> None:
        if not self._made:
            return
        self.remove_folder()
        if not self.is_sqlite:
            remove_schemas(self.address.url, self.prefix)

    def remove_folder(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def cleaned_up(clean_up: Callable[[], object]) -> Iterator[None]:
    """Clean up however the block ends; an error of the block takes precedence over one of the
    clean-up."""
    try:
        yield
    except BaseException:
        with suppress(Exception):
            clean_up()
        raise
    clean_up()


def temporary_url() -> str:
    return f"sqlite:///{tempfile.gettempdir()}/outlast.db"


def remove_schemas(url: str, prefix: str) -> None:
    """Remove schemas of this name, and those that begin with it."""
    import psycopg
    from psycopg import sql

    find = "SELECT nspname FROM pg_namespace WHERE nspname = %s OR starts_with(nspname, %s)"
    with psycopg.connect(url, autocommit=True, connect_timeout=10) as connection:
        connection.execute("SET client_min_messages = warning")
        for (name,) in connection.execute(find, (prefix, f"{prefix}_")).fetchall():
            drop = sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(name))
            connection.execute(drop)
