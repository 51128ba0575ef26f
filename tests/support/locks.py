"""A stranger's lock on the jobs, which keeps everybody from writing them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

from tests.support.databases import Database


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
