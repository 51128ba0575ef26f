"""A SQLite connection that another thread can close safely while a statement runs on it.

sqlite3 does not support that: closing a connection under a running statement crashes the process.
Connections lent to handlers are closed before a fork (see `forks`), whatever their handlers do at
that moment. So each call takes the connection's lock.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from .file_identity import FileConnection

LOCK_POLL_S = 0.003

F = TypeVar("F", bound=Callable[..., object])


class GuardedCursor(sqlite3.Cursor):
    connection: GuardedConnection


class GuardedConnection(FileConnection):
    """A connection lent to a handler."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.in_use = threading.RLock()
        super().__init__(*args, **kwargs)

    def cursor(self, factory: Any = GuardedCursor) -> Any:
        with self.in_use:
            return super().cursor(factory)

    # sqlite3's own versions would create plain cursors.

    def execute(self, *args: object) -> Any:
        return self.cursor().execute(*args)

    def executemany(self, *args: object) -> Any:
        return self.cursor().executemany(*args)

    def executescript(self, *args: object) -> Any:
        return self.cursor().executescript(*args)

    def begin(self, timeout_s: float) -> None:
        """BEGIN IMMEDIATE, waiting for other writers without the lock: SQLite's own wait cannot be
        interrupted, and a fork would have to wait, too."""
        until = time.monotonic() + timeout_s
        self.execute("PRAGMA busy_timeout = 0")
        while True:
            try:
                self.execute("BEGIN IMMEDIATE")
                break
            except sqlite3.OperationalError as error:
                busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY  # also of a recovery
                if not busy or time.monotonic() > until:
                    raise
            time.sleep(LOCK_POLL_S)
        self.execute("PRAGMA busy_timeout = 5000")  # for databases that a handler attaches

    def close_if_idle(self) -> bool:
        """Close it, unless a statement runs: then interrupt the statement."""
        if not self.in_use.acquire(blocking=False):
            with suppress(sqlite3.Error):  # it has just been closed
                self.interrupt()
            return False
        try:
            with suppress(sqlite3.Error):
                self.close()
            return True
        finally:
            self.in_use.release()


def close_all(connections: Sequence[GuardedConnection]) -> None:
    """Close connections, idle ones first; the others once their statements have ended."""
    busy = [connection for connection in connections if not connection.close_if_idle()]
    for connection in busy:
        with suppress(sqlite3.Error):
            connection.close()


def _guarded(method: F, lock: Callable[[Any], Any]) -> F:
    def call(self: object, *args: object, **kwargs: object) -> Any:
        with lock(self):
            return method(self, *args, **kwargs)

    return call  # type: ignore[return-value]


_OF_CURSORS = "execute executemany executescript fetchone fetchmany fetchall __next__ close"
_OF_CONNECTIONS = "commit rollback close backup blobopen serialize deserialize __exit__"

for _name in _OF_CURSORS.split():
    _method = getattr(sqlite3.Cursor, _name)
    setattr(GuardedCursor, _name, _guarded(_method, lambda cursor: cursor.connection.in_use))
for _name in _OF_CONNECTIONS.split():
    if _method := getattr(FileConnection, _name, None):  # missing in some builds
        setattr(GuardedConnection, _name, _guarded(_method, lambda connection: connection.in_use))
