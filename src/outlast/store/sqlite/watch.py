"""Watch for commits of other processes to a SQLite file by its `data_version`, which is cheap to
read."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from asyncio import Queue
from collections.abc import Callable
from contextlib import suppress

from .connection import translate_errors
from .file_identity import FileConnection, file_lost_error, identity_of


class CommitWatcher:
    def __init__(self, connect: Callable[[], FileConnection]) -> None:
        self._connect = connect
        self._connection: FileConnection | None = None
        # Not the store's lock, which is held while a write waits.
        self._lock = threading.Lock()

    async def watch(self, notify: Callable[[], None], every: float) -> None:
        """Call `notify` after every commit of another process, for ever."""
        loop = asyncio.get_running_loop()
        changes, stopped = Queue[Exception | None](), threading.Event()

        def report(error: Exception | None) -> None:
            loop.call_soon_threadsafe(changes.put_nowait, error)

        try:
            with translate_errors():
                poller = threading.Thread(
                    target=self._poll, args=(report, every, stopped), daemon=True
                )
                poller.start()
                while True:
                    if (error := await changes.get()) is not None:
                        raise error
                    notify()
        finally:
            stopped.set()
            with self._lock:
                self._close()

    def _poll(
        self, report: Callable[[Exception | None], object], every: float, stopped: threading.Event
    ) -> None:
        """Runs in its own thread: a turn of the event loop costs more, a hundred times a second.
        Neither the end of the watch nor the exit of the process waits for it."""
        last = None
        with suppress(RuntimeError):  # the loop is gone, and its watchers with it
            try:
                while not stopped.is_set():
                    if (version := self._data_version(stopped)) != last:
                        last = version
                        report(None)
                    stopped.wait(every)
            except Exception as error:
                report(error)

    def _data_version(self, stopped: threading.Event) -> int | None:
        with self._lock:
            if stopped.is_set():
                return None  # closed, and not to be opened again
            if self._connection is None:
                self._connection = self._connect()
            if (reason := identity_of(self._connection).loss()) is not None:
                self._close()
                raise file_lost_error(reason)
            (version,) = self._connection.execute("PRAGMA data_version").fetchone()
            return int(version)

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def close_idle(self) -> None:
        """Close the connection if it is idle; the next poll opens another."""
        if self._lock.acquire(blocking=False):
            try:
                with suppress(sqlite3.Error):
                    self._close()
            finally:
                self._lock.release()

    # See `forks`.

    def before_fork(self) -> None:
        self._lock.acquire()
        with suppress(sqlite3.Error):
            self._close()

    def after_fork_here(self) -> None:
        self._lock.release()

    def after_fork_in_child(self) -> None:
        self._lock = threading.Lock()
