"""Schemas in PostgreSQL with our tables, lent to one test after the other.

Making the tables and dropping them again takes longer than most tests. A schema that was lent is
kept for the next test only if nobody can be left who writes into it, and it is as it was made:

- whoever has connected since it was lent is ended, and is gone;
- a test that started a process, or left a thread, has its schema dropped;
- so has one whose tables are no longer those that were made, and one that has seen many rows: what
  is dead in its tables would make the next tests slow, and their plans strange;
- what is left is removed in one transaction, and the numbers of events start again.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from outlast.store import open_store
from tests.support.postgres import Postgres

MANY = 2000  # rows that one schema has seen

# What is made or altered is younger than all before it, and what is dropped is missing. The
# versions of the tables are rows, and are to be as they were.
SHAPE = """
SELECT count(*), max(born::text::bigint), (SELECT json_agg(m)::text FROM {schema}.migration AS m)
FROM (
    SELECT xmin FROM pg_namespace WHERE oid = {name}::regnamespace
    UNION ALL SELECT xmin FROM pg_class WHERE relnamespace = {name}::regnamespace
    UNION ALL SELECT xmin FROM pg_constraint WHERE connamespace = {name}::regnamespace
    UNION ALL SELECT xmin FROM pg_proc WHERE pronamespace = {name}::regnamespace
    UNION ALL SELECT a.xmin FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid
        WHERE relnamespace = {name}::regnamespace
    UNION ALL SELECT t.xmin FROM pg_class AS c JOIN pg_trigger AS t ON t.tgrelid = c.oid
        WHERE relnamespace = {name}::regnamespace
) AS found (born)
"""

# Who has connected since; and is not us.
CAME = """FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
    AND backend_start >= {since}"""

TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = {name} AND tablename <> 'migration'"
SEQUENCES = "SELECT sequencename FROM pg_sequences WHERE schemaname = {name}"
PUT_BACK = "INSERT INTO {table} SELECT * FROM json_populate_recordset(NULL::{table}, {rows})"

_numbers = itertools.count(1)
_started = 0  # processes, by this one


def _audit(event: str, _: Any) -> None:
    global _started  # noqa: PLW0603
    if event in ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn"):
        _started += 1


sys.addaudithook(_audit)


def new_name() -> str:
    """One that nobody else uses."""
    return f"test_{os.getpid()}_{next(_numbers)}"


# Who holds or waits for a lock on a schema or a table in it; a table that is being made is not
# visible yet, but whoever makes it holds its schema.
LOCKING = """
SELECT DISTINCT l.pid FROM pg_locks AS l
LEFT JOIN pg_class AS c ON l.locktype = 'relation' AND c.oid = l.relation
LEFT JOIN pg_namespace AS n ON n.oid = c.relnamespace OR (l.locktype = 'object'
    AND l.classid = 'pg_namespace'::regclass AND n.oid = l.objid)
WHERE l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND n.nspname = %s AND l.pid <> pg_backend_pid()
"""


def drop_schema(server: Postgres, schema: str) -> None:
    """Drop a test's schema, and end whoever still holds locks in it, but nobody else."""
    drop = sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema))
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("SET client_min_messages = warning")
        connection.execute("SET lock_timeout = '500ms'")
        try:
            connection.execute(drop)
        except psycopg.errors.LockNotAvailable:
            # A test that failed half-way left a transaction open.
            end = f"SELECT pg_terminate_backend(pid, 5000) FROM ({LOCKING}) AS locking"
            connection.execute(end, (schema,))
            connection.execute(drop)


class Schemas:
    """Those of one server: one lies ready. A test that takes two has another made."""

    def __init__(self, server: Postgres) -> None:
        self.server = server
        self._ready: _Schema | None = None

    @contextmanager
    def lend(self) -> Iterator[str]:
        """The name of a schema in which our tables are, and nothing else."""
        schema, self._ready = self._ready or _Schema(self.server), None
        others, since = _Others.now(), schema.now()
        kept = False
        try:
            yield schema.name
            kept = self._ready is None and others.are_all() and schema.empties(since)
        finally:
            if kept:
                self._ready = schema
            else:
                schema.drop()

    def close(self) -> None:
        if self._ready:
            self._ready.drop()


@dataclass(frozen=True)
class _Others:
    """Who could write after a test: processes and threads of this one."""

    started: int
    children: frozenset[str]
    threads: frozenset[threading.Thread]

    @classmethod
    def now(cls) -> _Others:
        # A process that was started in a way that is not audited is seen while it lives, on Linux.
        children = (_children(file) for file in Path("/proc/self/task").glob("*/children"))
        threads = frozenset(threading.enumerate())
        return cls(_started, frozenset(itertools.chain(*children)), threads)

    def are_all(self) -> bool:
        """Whether nobody was started, and nobody is here who was not."""
        now = _Others.now()
        there_is_new = now.children - self.children or now.threads - self.threads
        return now.started == self.started and not there_is_new


def _children(thread: Path) -> list[str]:
    """The processes that a thread has started; none if it has just ended."""
    try:
        return thread.read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return []


class _Schema:
    def __init__(self, server: Postgres) -> None:
        self.server = server
        self.name = new_name()
        self.seen = 0
        store = open_store(server.url(), self.name)
        store.migrate()
        store.close()
        self.connection = psycopg.connect(server.url(), autocommit=True, application_name="tests")
        self.shape = self._ask(SHAPE)
        self.emptying = self._emptying()

    def now(self) -> Any:
        return self._ask("SELECT clock_timestamp()")[0][0]

    def empties(self, since: Any) -> bool:
        """Whether nobody is left in it, and it is again as it was made."""
        try:
            if not self._is_alone(since) or self._ask(SHAPE) != self.shape:
                return False
            self._empty()
        except psycopg.Error:  # it is no longer there, or our own session was ended with others
            return False
        return self.seen < MANY

    def _is_alone(self, since: Any) -> bool:
        """Whoever has hung up is gone in a moment; to end sessions takes a tenth of a second."""
        for wait in (0.0, 0.001, 0.002, 0.004, 0.008, 0.016):
            time.sleep(wait)
            if not self._ask(f"SELECT pid {CAME}", since=since):
                return True
        self._ask(f"SELECT pg_terminate_backend(pid, 5000) {CAME}", since=since)
        return not self._ask(f"SELECT pid {CAME}", since=since)

    def drop(self) -> None:
        self.connection.close()
        if self.server.running:
            drop_schema(self.server, self.name)

    def _empty(self) -> None:
        cursor = self.connection.execute(self.emptying)
        while cursor.nextset():
            if (cursor.statusmessage or "").startswith("DELETE"):
                self.seen += cursor.rowcount

    def _emptying(self) -> sql.Composed:
        """In one round trip: remove all rows, and put back those that the migrations made."""
        parts = [sql.SQL("BEGIN")]
        for (table,) in self._ask(TABLES):
            which = {"table": sql.Identifier(self.name, table)}
            parts.append(sql.SQL("DELETE FROM {table}").format(**which))
            [(rows,)] = self._ask("SELECT json_agg(r)::text FROM {table} AS r", **which)
            if rows:
                which["rows"] = sql.Literal(rows)
                parts.append(sql.SQL(PUT_BACK).format(**which))
        for (sequence,) in self._ask(SEQUENCES):
            which = {"sequence": sql.Literal(f"{self.name}.{sequence}")}
            parts.append(sql.SQL("SELECT setval({sequence}, 1, false)").format(**which))
        return sql.SQL("; ").join([*parts, sql.SQL("COMMIT")])

    def _ask(self, query: str, **given: Any) -> list[tuple[Any, ...]]:
        given |= {"schema": sql.Identifier(self.name), "name": sql.Literal(self.name)}
        return self.connection.execute(sql.SQL(query).format(**given)).fetchall()
