"""SQLite connections: opening, executing statements, translating errors."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from operator import methodcaller
from pathlib import Path

from ...model.errors import (
    CorruptDatabase,
    SchemaMismatch,
    StoreBusy,
    StoreError,
    StoreUnavailable,
    Unsupported,
)
from ...model.settings import StoreSettings
from ...ops.operation import Rows, Statement
from ..statements import Query
from .file_identity import FileConnection, open_checked

TABLE_CHECK_TIMEOUT_S = 5.0
MIN_SQLITE_VERSION = (3, 35, 0)  # UPDATE … RETURNING

# Text that is not UTF-8, which only another program can have written, affects its own row and not
# every result that contains it.
_TEXT = methodcaller("decode", "utf-8", "backslashreplace")


def decode_blob(value: object) -> object:
    return _TEXT(value) if isinstance(value, bytes) else value


def run(connection: sqlite3.Connection, query: Query, statement: Statement) -> Rows:
    """Run a statement on any sqlite3 connection."""
    return connection.execute(query.sql, statement.bind).fetchall()


def connect(
    path: Path, settings: StoreSettings, kind: type[FileConnection] = FileConnection
) -> FileConnection:
    """A connection to an existing file. It creates none: a vanished file must not reappear
    empty."""
    if sqlite3.sqlite_version_info < MIN_SQLITE_VERSION:
        raise Unsupported(
            reason=f"SQLite {sqlite3.sqlite_version} is too old: Outlast needs 3.35 or newer"
        )
    with _naming(path):
        return open_checked(path, lambda: _connect(path, settings, kind))


def _connect(path: Path, settings: StoreSettings, kind: type[FileConnection]) -> FileConnection:
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode=rw",
        uri=True,
        factory=kind,
        timeout=settings.lock_timeout,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )
    try:
        mode = _write_ahead(connection, settings.lock_timeout)
        if mode != "wal":
            raise Unsupported(reason=f"{path} cannot use a write-ahead log (mode {mode!r})")
        connection.text_factory = _TEXT
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
    except BaseException:
        connection.close()
        raise
    return connection


def has_table(path: Path, name: str) -> bool:
    """Whether a file has a table. The file is neither created nor changed."""
    if not path.exists():
        return False
    # Not read-only: that would leave the files of a write-ahead log behind.
    address = f"{path.absolute().as_uri()}?mode=rw"
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    with (
        _naming(path),
        closing(sqlite3.connect(address, uri=True, timeout=TABLE_CHECK_TIMEOUT_S)) as connection,
    ):
        return connection.execute(query, (name,)).fetchone() is not None


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """SQLite's error does not name the file that it cannot open."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if _code(error) == sqlite3.SQLITE_CANTOPEN:
            raise StoreUnavailable(reason=f"{error}: {path}") from error
        raise


def _write_ahead(connection: sqlite3.Connection, timeout_s: float) -> str:
    """Set WAL mode. SQLite does not wait if another process writes before it is set, as when
    several open a new database at once; so this waits."""
    until = time.monotonic() + timeout_s
    while True:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            return str(mode)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
        time.sleep(0.005)


def create_private(path: Path) -> None:
    """Create a new database that only its owner can read, and its directories. An existing file is
    not even opened: closing it would drop the locks that other connections of this process hold. A
    link may point to a missing file: SQLite would create that one, readable by all."""
    real = Path(os.path.realpath(path))
    for folder in reversed(real.parents):
        if not folder.exists():
            folder.mkdir(mode=0o700, exist_ok=True)
    with suppress(FileExistsError):
        os.close(os.open(real, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


class SqliteErrors:
    """A context manager without state, like `PostgresErrors`."""

    __slots__ = ()

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, sqlite3.OperationalError):
            raise _operational(error) from error
        if isinstance(error, sqlite3.Error):
            raise _refusal(error) from error
        if isinstance(error, OSError):
            raise StoreUnavailable(reason=str(error)) from error


_ERRORS = SqliteErrors()


def translate_errors() -> SqliteErrors:
    """Translate SQLite's errors."""
    return _ERRORS


def _operational(error: sqlite3.OperationalError) -> StoreError:
    code = _code(error)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreBusy(reason=str(error), locked=True)
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL):
        return StoreUnavailable(reason=str(error))
    if str(error).startswith(("no such table", "no such column")):
        return SchemaMismatch(
            reason=f"the tables do not fit this release ({error}): run `outlast migrate`"
        )
    return StoreError(f"SQLite refused: {error}")


def _refusal(error: sqlite3.Error) -> StoreError:
    if _is_damage(error):
        return CorruptDatabase(
            reason=str(error), or_else=", or save what `sqlite3 FILE .recover` can read"
        )
    rows = isinstance(error, sqlite3.DataError | sqlite3.IntegrityError)
    rows = rows or "binding parameter" in str(error)  # a value without an SQLite type
    return StoreError(f"SQLite refused: {error}", refused=rows)


def is_disk_full(error: sqlite3.Error) -> bool:
    """Whether the disk is full, or a quota or limit is reached."""
    full = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE)
    return getattr(error, "sqlite_errorcode", 0) in full


def _code(error: sqlite3.Error) -> int:
    """SQLite's primary result code."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _is_damage(error: sqlite3.Error) -> bool:
    return _code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
