"""Online migration: upgrade tables in use, step by step, without locks that block other sessions.

Each step is recorded in the transaction that does it, or right after it (an index), so that an
interrupted upgrade continues where it was, in any process. Safe to run concurrently: one process
does a step, and the others find it done.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import LiteralString, TypeVar

import psycopg

from ...model.errors import StoreBusy, Unsupported
from ..schema import BACKFILL, CHANGE, MigrationStep, SchemaMigration
from .connection import DeadlineConnection
from .errors import first_line

log = logging.getLogger("outlast.migrate")

T = TypeVar("T")

LOCK_WAIT_MS = 500  # other sessions queue behind a waiting lock
LOCK_RETRY_S = 600.0  # seconds for which a change tries to get its locks
FIRST_PAUSE_S, MAX_PAUSE_S = 0.1, 5.0  # between these tries
LOCK_FOR_SESSION: LiteralString = "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))"
LOCK_FOR_TRANSACTION: LiteralString = "SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))"
INDEX_NAME = re.compile(r"INDEX CONCURRENTLY (?:IF NOT EXISTS )?(\w+)", re.IGNORECASE)


class OnlineMigration:
    """One version of the tables, applied on one connection."""

    def __init__(
        self, link: DeadlineConnection, schema: str, migration: SchemaMigration, pooled: bool
    ) -> None:
        self._link = link
        self._schema = schema
        self._migration = migration
        self._pooled = pooled

    def run(self) -> None:
        """Do the remaining steps, and record the version."""
        steps = self._migration.steps
        for number, step in enumerate(steps, 1):
            log.info(
                "version %d, step %d of %d: %s",
                self._migration.version, number, len(steps), step.purpose,
            )  # fmt: skip
            if step.kind == CHANGE:
                retry_while_locked(self._link, lambda: self._change(number, step))  # noqa: B023 - called here
            elif step.kind == BACKFILL:
                self._backfill(number, step)
            else:
                self._index(number, step)
        retry_while_locked(self._link, self._record_version)

    def _change(self, number: int, step: MigrationStep) -> None:
        with self._transaction(number) as done:
            if not done:
                for statement in step.statements:
                    self._link.execute(statement)
                self._record(number)

    def _backfill(self, number: int, step: MigrationStep) -> None:
        """Run a backfill in batches, until one changes no row."""
        rows, changed = 0, 1

        def batch() -> int:
            with self._transaction(number) as done:
                changed = 0 if done else self._link.execute(step.statements[0]).rowcount
                if not done and not changed:
                    self._record(number)
            return changed

        while changed:
            changed = retry_while_locked(self._link, batch)
            rows += changed
            if changed:
                log.info("… %s rows", f"{rows:,}")

    def _index(self, number: int, step: MigrationStep) -> None:
        """Build an index concurrently. An invalid one, left by a kill, is dropped first."""
        if self._pooled:
            raise Unsupported(
                reason=f"step {number} of version {self._migration.version} builds an index"
                " concurrently: run `outlast migrate` with a URL that leads to the server, not to a"
                " pooler"
            )
        statement = step.statements[0]
        found = INDEX_NAME.search(statement)
        name = found[1] if found else ""
        with self._alone():
            if self._is_done(number):
                return
            state = self._index_state(name)
            if state is False:
                self._link.execute(f'DROP INDEX CONCURRENTLY "{self._schema}".{name}')
            if not state:
                self._link.execute(statement)
            self._record(number)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold a session lock, without time limits. The server releases it if this process ends."""
        link, deadline, until = self._link, self._link.deadline, self._link.until
        link.deadline, link.until = None, None  # type: ignore[assignment]
        link.execute("SET statement_timeout = 0")
        link.execute("SET lock_timeout = 0")
        pause = FIRST_PAUSE_S
        while not _try_lock(link, self._schema, LOCK_FOR_SESSION):
            time.sleep(pause)
            pause = min(MAX_PAUSE_S, pause * 2)
        try:
            yield
        finally:
            if not link.closed:
                link.execute(
                    "SELECT pg_advisory_unlock(hashtextextended(%s, 0))",
                    (_lock_name(self._schema),),
                )
                link.execute("RESET statement_timeout")
                link.execute("RESET lock_timeout")
            link.deadline, link.until = deadline, until

    def _index_state(self, name: str) -> bool | None:
        """Whether an index is valid; None: there is none."""
        row = self._link.execute(
            "SELECT i.indisvalid FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid"
            " JOIN pg_namespace AS n ON n.oid = c.relnamespace"
            " WHERE n.nspname = %s AND c.relname = %s",
            (self._schema, name),
        ).fetchone()
        return None if row is None else bool(row[0])

    @contextmanager
    def _transaction(self, number: int) -> Iterator[bool]:
        """A transaction with a short lock timeout; yields whether the step is done."""
        with self._link.transaction():
            self._link.execute(f"SET LOCAL lock_timeout = {LOCK_WAIT_MS}")
            hold_migration_lock(self._link, self._schema)
            yield self._is_done(number)

    def _is_done(self, number: int) -> bool:
        table = f'"{self._schema}".migration_step'
        query = f"SELECT 1 FROM {table} WHERE version = %s AND step = %s"  # noqa: S608
        given = (self._migration.version, number)
        return self._link.execute(query, given).fetchone() is not None

    def _record(self, number: int) -> None:
        table = f'"{self._schema}".migration_step'
        self._link.execute(
            f"INSERT INTO {table} VALUES (%s, %s, now())",  # noqa: S608 - checked name
            (self._migration.version, number),
        )

    def _record_version(self) -> None:
        version, oldest = self._migration.version, self._migration.compatible_from
        with self._transaction(0):
            self._link.execute(
                f'INSERT INTO "{self._schema}".migration VALUES (%s, %s, now())'  # noqa: S608
                " ON CONFLICT DO NOTHING",
                (version, oldest),
            )


def hold_migration_lock(link: DeadlineConnection, schema: str) -> None:
    """Keep other processes from migrating until the transaction ends, or raise LockNotAvailable."""
    if not _try_lock(link, schema, LOCK_FOR_TRANSACTION):
        raise psycopg.errors.LockNotAvailable("another process migrates the tables")


def _try_lock(link: DeadlineConnection, schema: str, query: LiteralString) -> bool:
    """Try a lock; no statement waits for it inside the server: a waiting statement has a snapshot,
    and the process that builds an index waits until all older snapshots are gone."""
    row = link.execute(query, (_lock_name(schema),)).fetchone()
    return row is not None and bool(row[0])


def _lock_name(schema: str) -> str:
    return f"outlast migrate {schema}"


def retry_while_locked(link: DeadlineConnection, attempt: Callable[[], T]) -> T:
    """Retry while other sessions hold the locks, with pauses in which those behind us pass."""
    until, pause = time.monotonic() + LOCK_RETRY_S, FIRST_PAUSE_S
    while True:
        link.until = None
        try:
            return attempt()
        except psycopg.errors.LockNotAvailable as error:
            if time.monotonic() > until:
                raise StoreBusy(reason=first_line(error), locked=True) from error
            log.info("… others hold the lock; trying again in %.1f s", pause)
        time.sleep(pause)
        pause = min(MAX_PAUSE_S, pause * 2)
