"""Where it is measured: every single measurement has a place of its own, which is gone afterwards.

On somebody's PostgreSQL that is a schema; where everybody is to be measured it is a database, since
not all of them can be told a schema.
"""

from __future__ import annotations

import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from benchmarks.serve import Place
from outlast.model.errors import StoreError

DROP_DATABASE = "DROP DATABASE IF EXISTS {} WITH (FORCE)"
DROP_SCHEMA = "DROP SCHEMA IF EXISTS {} CASCADE"
POSTGRES, SQLITE, REDIS = "postgres", "sqlite", "redis"


class Ground:
    """All places of one run. A store without a URL is not there."""

    def __init__(
        self,
        folder: Path,
        postgres: str | None = None,
        redis: str | None = None,
        *,
        schema: str = "outlast",
        databases: bool = False,
    ) -> None:
        self.folder = folder
        self.postgres = postgres
        self.redis = redis
        self._schema = schema
        self._databases = databases
        self._token = f"{schema[:24]}_bench_{secrets.token_hex(3)}"
        self._made = 0

    def has(self, store: str) -> bool:
        return {POSTGRES: self.postgres, SQLITE: self.folder, REDIS: self.redis}[store] is not None

    @contextmanager
    def place(self, store: str, concurrency: int) -> Iterator[Place]:
        """A fresh one."""
        self._made += 1
        self.folder.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="place-", dir=self.folder))
        name = f"{self._token}_{self._made}"
        place = Place(store, "", name, str(folder), concurrency=concurrency)
        try:
            if store == POSTGRES:
                with self._in_postgres(place) as there:
                    yield there
            elif store == REDIS:
                assert self.redis is not None
                say(self.redis, "FLUSHALL")
                yield replace(place, url=self.redis)
            else:
                yield replace(place, url=f"sqlite:///{folder / 'jobs.db'}", schema=self._schema)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def _in_postgres(self, place: Place) -> Iterator[Place]:
        assert self.postgres is not None
        drop = DROP_DATABASE if self._databases else DROP_SCHEMA
        url = with_database(self.postgres, place.schema) if self._databases else self.postgres
        try:
            if self._databases:
                execute(self.postgres, "CREATE DATABASE {}", place.schema)
            yield replace(place, url=url, schema=self._schema if self._databases else place.schema)
        finally:
            execute(self.postgres, drop, place.schema)

    def settle(self, place: Place) -> None:
        """Before the clock runs: statistics as tables of some age have them; and, where we are
        alone, no old pages that wait to be written."""
        if place.store != POSTGRES:
            return
        if not self._databases:
            execute(place.url, "ANALYZE {}", place.schema, "job")
            return
        execute(place.url, "ANALYZE")
        with suppress(StoreError):  # not everybody may
            execute(place.url, "CHECKPOINT")


def with_database(url: str, name: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


def execute(url: str, statement: str, *name: str) -> list[Any]:
    """One statement on a connection of its own; `{}` is a name."""
    import psycopg
    from psycopg import sql

    from outlast.store.postgres.errors import translate_errors

    named: Any = sql.SQL(statement).format(sql.Identifier(*name)) if name else statement
    with translate_errors(), closing(psycopg.connect(url, autocommit=True)) as connection:
        connection.execute("SET client_min_messages = warning")
        cursor = connection.execute(named)
        return cursor.fetchall() if cursor.description else []


def say(url: str, *commands: str) -> str:
    """To Redis, without a library, in plain words: what it answered to all of it."""
    place = urlsplit(url)
    with socket.create_connection((place.hostname or "127.0.0.1", place.port or 6379), 10) as line:
        line.sendall("".join(f"{command}\r\n" for command in (*commands, "QUIT")).encode())
        return b"".join(iter(lambda: line.recv(65536), b"")).decode(errors="replace")


@contextmanager
def held_snapshot(url: str) -> Iterator[None]:
    """A transaction somewhere that sees the database as it is now, and keeps every dead row."""
    import psycopg

    with closing(psycopg.connect(url)) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT count(*) FROM pg_class")
        yield
