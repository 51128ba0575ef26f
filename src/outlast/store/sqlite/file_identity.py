"""The identity of the file that a SQLite connection has open, compared with the file at its path.

A database file that is deleted, renamed or replaced stays open: SQLite continues to read and write
a file that no other process can find. So device and inode are recorded when a connection opens, and
compared before an operation and after each commit, before it is acknowledged. The write-ahead log
and its index (-wal, -shm) belong to the database: the loss of one of them is as bad.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ...model.errors import StoreUnavailable

COMPARE_EVERY_S = 0.2  # seconds
OPEN_TRIES = 3  # a file may be replaced while it is opened, but hardly three times

File = tuple[int, int] | None  # device and inode; None: no file


def file_at(path: str | Path) -> File:
    try:
        found = os.stat(path)  # noqa: PTH116 - a third faster than Path.stat, at each commit
    except OSError:
        return None
    return found.st_dev, found.st_ino


class FileIdentity:
    """The files that one connection has open."""

    __slots__ = ("_compared_at", "_files", "path")

    def __init__(self, path: Path) -> None:
        # SQLite follows links when it opens a database, and names the log after the file itself.
        real = os.path.realpath(path)
        self.path = path
        self._compared_at = 0.0
        self._files = tuple(
            (name, file_at(name)) for name in (str(path), f"{real}-wal", f"{real}-shm")
        )

    def is_same(self) -> bool:
        """Whether the database and its log, which a commit was written to, are still in place.
        Takes a few microseconds, at each commit."""
        return self._are_in_place(2)

    def is_same_recently(self) -> bool:
        """The same for all three files, before an operation, at most a few times a second."""
        now = time.monotonic()
        if now - self._compared_at < COMPARE_EVERY_S:
            return True
        self._compared_at = now
        return self._are_in_place(3)

    def _are_in_place(self, number: int) -> bool:
        try:
            for name, file in self._files[:number]:
                found = os.stat(name)  # noqa: PTH116 - as above
                if (found.st_dev, found.st_ino) != file:
                    return False
        except OSError:
            return False
        return True

    def loss(self) -> str | None:
        """The loss of a file, for messages; None: no loss."""
        for name, file in self._files:
            found = file_at(name)
            if found is None:
                return f"{name} was deleted or renamed"
            if found != file:
                return f"{name} was replaced by another file"
        return None

    @property
    def is_in_place(self) -> bool:
        """Whether the database itself is in place, regardless of its log."""
        name, file = self._files[0]
        return file_at(name) == file


class FileConnection(sqlite3.Connection):
    """A connection with the identity of its file.

    SQLite deletes the log *by its name* when the last connection to a file closes. By then the name
    may be that of the log of a replacement file, with commits in it. So a connection whose file is
    no longer at its path is never closed: it stays open until the process ends.
    """

    identity: FileIdentity | None = None

    def close(self) -> None:
        if self.identity is None or self.identity.is_in_place:
            super().close()
        else:
            self._stay_open()

    def __del__(self) -> None:
        with suppress(Exception):  # at exit, parts of Python are gone already
            if self.identity is not None and not self.identity.is_in_place:
                self._stay_open()
                return
            if (close := getattr(super(), "__del__", None)) is not None:
                close()  # since Python 3.13, only this closes it

    def _stay_open(self) -> None:
        if self.in_transaction:
            with suppress(sqlite3.Error):
                self.execute("ROLLBACK")
        self.identity = None
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))


def identity_of(connection: FileConnection) -> FileIdentity:
    assert connection.identity is not None
    return connection.identity


def open_checked(path: Path, connect: Callable[[], FileConnection]) -> FileConnection:
    """A connection whose file was at the path while it was opened."""
    for _ in range(OPEN_TRIES):
        before = file_at(path)
        connection = connect()
        try:
            connection.execute("PRAGMA schema_version").fetchall()  # opens the log, too
            connection.identity = FileIdentity(path)
        except BaseException:
            connection.close()
            raise
        if before == file_at(path) and identity_of(connection).loss() is None:
            return connection
        connection.close()
    raise StoreUnavailable(reason=f"{path} is being replaced repeatedly")


def file_lost_error(reason: str) -> StoreUnavailable:
    """The error for a write into a file that is gone."""
    reason = f"{reason} while it was in use: the last write is not acknowledged"
    return StoreUnavailable(reason=reason, broke=True)


def file_gone_error(path: Path) -> StoreUnavailable:
    reason = (
        f"{path} was deleted or renamed while it was in use: restore it; a new database is only"
        " created by a process that starts"
    )
    return StoreUnavailable(reason=reason)
