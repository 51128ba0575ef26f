"""Locks that keep everybody from writing jobs: a stranger's, and how not to stop their owner."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

from tests.support.databases import Database
from tests.support.processes import Process
from tests.support.waiting import eventually


@contextmanager
def foreign_lock(database: Database, mode: str = "EXCLUSIVE") -> Iterator[None]:
    """The write lock of a SQLite file; on PostgreSQL, one of this mode on the table of jobs."""
    if database.is_sqlite:
        stranger = sqlite3.connect(database.path, isolation_level=None, timeout=30.0)
        with closing(stranger):
            stranger.execute("BEGIN IMMEDIATE")
            yield
            stranger.execute("COMMIT")
        return
    with database.connect() as connection, connection.transaction():
        connection.execute(f"LOCK TABLE {database.schema}.job IN {mode} MODE")
        yield


def pause_between_writes(process: Process, database: Database) -> None:
    """SIGSTOP, but not inside a transaction of a SQLite file: its write lock has no end but that of
    the process, so nobody else could write until it goes on. PostgreSQL ends such a transaction."""

    def stopped_without_the_lock() -> bool:
        process.pause()
        if not database.is_sqlite or _can_be_written(database):
            return True
        process.resume()
        return False

    eventually(stopped_without_the_lock)


def _can_be_written(database: Database) -> bool:
    # Others who write hold it for milliseconds.
    with closing(sqlite3.connect(database.path, isolation_level=None, timeout=0.1)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        connection.execute("ROLLBACK")
        return True
