"""What every process of a seed may call: named points, notes, transactions of its own.

The run's folder and database are in the environment, so that processes that are started again
find them.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

FOLDER, URL, SCHEMA = "SEED_FOLDER", "OUTLAST_URL", "OUTLAST_SCHEMA"


def folder() -> Path:
    return Path(os.environ[FOLDER])


def on_sqlite() -> bool:
    return os.environ[URL].startswith("sqlite")


def point(name: str) -> None:
    """A named point of a program. If it is armed, the process that comes here dies by SIGKILL."""
    with suppress(FileNotFoundError):
        (folder() / f"kill {name}").unlink()  # so that it kills once
        note("deaths", time.time(), name)
        os.kill(os.getpid(), signal.SIGKILL)


def note(name: str, *words: object) -> None:
    """Append a line to a file outside the database, in one write: no rollback takes it back."""
    with (folder() / f"{name}.log").open("ab", buffering=0) as file:
        file.write((" ".join(map(str, words)) + "\n").encode())


def notes(name: str) -> list[list[str]]:
    """The lines of such a file, in words."""
    file = folder() / f"{name}.log"
    return [line.split() for line in file.read_text().splitlines()] if file.exists() else []


@contextmanager
def transaction() -> Iterator[Any]:
    """A transaction of the program's own, in the database of its jobs: the `conn` of an enqueue."""
    if on_sqlite():
        file = os.environ[URL].removeprefix("sqlite:///")
        with closing(sqlite3.connect(file, timeout=15, isolation_level=None)) as conn:
            conn.execute("PRAGMA wal_autocheckpoint = 0")
            conn.execute("BEGIN IMMEDIATE")
            yield conn
            conn.execute("COMMIT")  # an exception goes past it, and closing rolls back
    else:
        import psycopg

        with psycopg.connect(os.environ[URL], prepare_threshold=None) as conn:
            own_tables(conn)
            yield conn


def own_tables(conn: Any) -> None:
    """Let names of tables in this transaction mean those of the run; SQLite has no others."""
    if not on_sqlite():
        conn.execute(f"SET LOCAL search_path TO {os.environ[SCHEMA]}")


def execute(conn: Any, sql: str, *values: object) -> list[Any]:
    """One statement, with `?` for each value, on either database; its rows."""
    text = sql if isinstance(conn, sqlite3.Connection) else sql.replace("?", "%s")
    cursor = conn.execute(text, values)
    return list(cursor.fetchall()) if cursor.description else []


def query(sql: str, *values: object) -> list[Any]:
    """One statement in a transaction of its own."""
    with transaction() as conn:
        return execute(conn, sql, *values)
