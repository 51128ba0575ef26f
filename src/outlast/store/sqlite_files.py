"""SQLite's connections: how they are opened, what a statement does on one, its errors as ours."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from operator import methodcaller
from pathlib import Path

from ..model.errors import SchemaMismatch, StoreBusy, StoreError, StoreUnavailable, Unsupported
from ..model.settings import StoreSettings
from ..ops.statement import Rows, Statement
from .sqlite_identity import FileConnection, opened
from .statements import Query

OLDEST = (3, 35, 0)  # UPDATE … RETURNING

# Text that is no UTF-8, which only somebody else's hand can have put there, spoils its own row and
# not every answer that it is part of.
_TEXT = methodcaller("decode", "utf-8", "backslashreplace")


def decoded(value: object) -> object:
    return _TEXT(value) if isinstance(value, bytes) else value


def run(connection: sqlite3.Connection, query: Query, statement: Statement) -> Rows:
    """A statement on any sqlite3 connection."""
    return connection.execute(query.sql, statement.given).fetchall()


def connect(path: Path, settings: StoreSettings) -> FileConnection:
    """A connection to an existing file. None is made here: one that vanished must not come back
    empty."""
    if sqlite3.sqlite_version_info < OLDEST:
        raise Unsupported(
            reason=f"SQLite {sqlite3.sqlite_version} is too old: Outlast needs 3.35 or newer"
        )
    return opened(path, lambda: _connect(path, settings))


def _connect(path: Path, settings: StoreSettings) -> FileConnection:
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode=rw",
        uri=True,
        factory=FileConnection,
        timeout=settings.lock_timeout,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )
    try:
        mode = _write_ahead(connection, settings.lock_timeout)
        if mode != "wal":
            raise Unsupported(reason=f"{path} cannot use a write-ahead log (it says {mode!r})")
        connection.text_factory = _TEXT
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
    except BaseException:
        connection.close()
        raise
    return connection


def _write_ahead(connection: sqlite3.Connection, patience: float) -> str:
    """The journal mode. SQLite does not wait where somebody else writes before it is set, as
    happens when several open a new database at once; so this does."""
    until = time.monotonic() + patience
    while True:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            return str(mode)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
        time.sleep(0.005)


def create_private(path: Path) -> None:
    """A new database is readable by its owner alone. An existing file is not even opened: closing
    it would drop the locks that this process's other connections hold on it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


@contextmanager
def understood() -> Iterator[None]:
    """SQLite's errors as ours."""
    try:
        yield
    except sqlite3.OperationalError as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise StoreBusy(reason=str(error)) from error
        if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL):
            raise StoreUnavailable(reason=str(error)) from error
        if str(error).startswith(("no such table", "no such column")):
            raise SchemaMismatch(
                reason=f"the tables do not fit this release ({error}): run `outlast migrate`"
            ) from error
        raise StoreError(f"SQLite refused: {error}") from error
    except sqlite3.Error as error:
        rows = isinstance(error, sqlite3.DataError | sqlite3.IntegrityError)
        rows = rows or "binding parameter" in str(error)  # a value that SQLite has no type for
        raise StoreError(f"SQLite refused: {error}", refused=rows) from error
    except OSError as error:
        raise StoreUnavailable(reason=str(error)) from error
