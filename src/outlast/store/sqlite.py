"""SQLite: one file, nothing to set up, safe to kill at any instruction.

Each process has one connection that writes and one that reads. Every write is a transaction begun
with BEGIN IMMEDIATE, so it never has to upgrade a lock; readers never wait. Commits are synced to
disk (synchronous=FULL).

Checkpoints are ours alone, made while we hold the write lock: SQLite before 3.51.3 can lose the
end of a log that a commit restarts while a checkpoint runs (the "WAL-reset" race), and a commit
cannot happen while we hold that lock.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from asyncio import Queue
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from ..model.errors import StoreError
from ..model.settings import StoreSettings
from ..ops.duties import prove_life
from ..ops.statement import Begin, Op, Step, Together
from . import alive, schema
from .address import Address
from .base import Store
from .filesystem import refuse_network_file_system
from .runner import drive
from .sqlite_files import connect, create_private, run, transaction, understood
from .statements import SQLITE, Query

T = TypeVar("T")


class SqliteStore(Store):
    def __init__(self, address: Address, settings: StoreSettings) -> None:
        super().__init__(address, settings)
        assert address.path is not None
        self.path: Path = address.path
        self._lock = threading.RLock()
        self._watching = threading.Lock()
        self._pid = 0
        self._forgotten: list[sqlite3.Connection] = []
        self._commits = 0
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._watcher: sqlite3.Connection | None = None
        self._lent: set[sqlite3.Connection] = set()
        self._thread: ThreadPoolExecutor | None = None
        self._proofs: dict[str, alive.Proof] = {}

    def once(self, op: Op[T]) -> T:
        with self._lock, understood():
            self._open()
            return drive(op, SqliteSession(self, self.queries))

    async def aonce(self, op: Op[T]) -> T:
        loop = asyncio.get_running_loop()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "outlast-sqlite")
        # Shielded: a caller that is cancelled gets its answer late, never half a transaction.
        return await asyncio.shield(loop.run_in_executor(self._thread, self.once, op))

    @property
    def writer(self) -> sqlite3.Connection:
        assert self._writer is not None
        return self._writer

    @property
    def reader(self) -> sqlite3.Connection:
        assert self._reader is not None
        return self._reader

    def lend(self) -> sqlite3.Connection:
        """A connection for somebody who writes on his own account."""
        with self._lock:
            connection = connect(self.path, self.settings)
            self._lent.add(connection)
            return connection

    def take_back(self, connection: sqlite3.Connection) -> None:
        connection.close()
        self._lent.discard(connection)

    def _open(self) -> None:
        if self._writer is not None and self._pid == os.getpid():
            return
        if self._writer is not None and self._reader is not None:
            # Forked by something that Python was not told of: these belong to the parent, and are
            # neither used nor closed here.
            self._forgotten += [self._writer, self._reader]
            self._thread = None
        refuse_network_file_system(self.path)
        create_private(self.path)
        self._pid = os.getpid()
        self._writer = connect(self.path, self.settings)
        self._reader = connect(self.path, self.settings)

    def committed(self) -> None:
        """After a commit: keep the log short. That this cannot be done now (a full disk) is no news
        for a caller whose commit stands; the next one tries again."""
        self._commits += 1
        if self._commits % 64 == 0 and self._log_pages() > self.settings.checkpoint_pages:
            with suppress(StoreError):
                self.checkpoint()

    def checkpoint(self) -> bool:
        """Copy the log into the database while nobody can commit. False: somebody is writing."""
        with self._lock, understood():
            self._open()
            try:
                self.writer.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return False
            try:
                self.reader.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            finally:
                self.writer.execute("ROLLBACK")
            return True

    def _log_pages(self) -> int:
        try:
            return Path(f"{self.path}-wal").stat().st_size // 4096
        except OSError:
            return 0

    def prepare_schema(self) -> None:
        with self._lock, understood():
            self._open()
            version, compatible_from = self._version()
        if version == 0:
            self.migrate()
        else:
            schema.check(version, compatible_from)

    def migrate(self) -> list[int]:
        known = schema.migrations(SQLITE, self.address.schema)
        done: list[int] = []
        with self._lock, understood():
            self._open()
            while True:
                with transaction(self.writer):
                    step = schema.next_step(known, self._version()[0])
                    for migration in step:
                        self._apply(migration)
                if not step:
                    return done
                done += [migration.version for migration in step]

    def _apply(self, migration: schema.Migration) -> None:
        name = f"{self.address.schema}_migration"
        self.writer.execute(
            f"CREATE TABLE IF NOT EXISTS {name} (version INTEGER NOT NULL PRIMARY KEY,"
            " compatible_from INTEGER NOT NULL, applied_at TEXT NOT NULL)"
        )
        for statement in migration.statements:
            self.writer.execute(statement)
        self.writer.execute(
            f"INSERT INTO {name} VALUES (?, ?, datetime('now'))",  # noqa: S608 - checked name
            (migration.version, schema.COMPATIBLE_FROM[migration.version]),
        )

    def _version(self) -> tuple[int, int]:
        name = f"{self.address.schema}_migration"
        exists = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
        if not self.writer.execute(exists, (name,)).fetchall():
            return 0, 0
        query = f"SELECT max(version), max(compatible_from) FROM {name}"  # noqa: S608
        version, compatible_from = self.writer.execute(query).fetchone()
        return version or 0, compatible_from or 0

    async def watch(self, worker: str, woken: Callable[[str], None], every: float) -> None:
        """`data_version` changes when another connection has committed; reading it is cheap. A
        locked file is the proof of life meanwhile."""
        proof = self._proofs.setdefault(worker, alive.Proof(self.path, worker))
        try:
            with understood():
                self.proving = proof.hold()
                if self.proving:
                    await self.arun(prove_life, worker)
                await self.follow(lambda: woken(""), every)
        except asyncio.CancelledError:
            self.proving = False
            self._proofs.pop(worker).give_up()
            raise

    async def follow(self, woken: Callable[[], None], every: float) -> None:
        loop, news, enough = (
            asyncio.get_running_loop(),
            Queue[Exception | None](),
            threading.Event(),
        )

        def tell(error: Exception | None) -> None:
            loop.call_soon_threadsafe(news.put_nowait, error)

        try:
            with understood():
                watching = threading.Thread(
                    target=self._look_out, args=(tell, every, enough), daemon=True
                )
                watching.start()
                while True:
                    if (error := await news.get()) is not None:
                        raise error
                    woken()
        finally:
            enough.set()
            with self._watching:
                self._close_watcher()

    def _look_out(
        self, tell: Callable[[Exception | None], object], every: float, enough: threading.Event
    ) -> None:
        """In a thread of its own: a turn of an event loop costs more, and there are a hundred in a
        second. Nobody waits for it, neither at the end of the watch nor at that of the process."""
        last = None
        with suppress(RuntimeError):  # the loop is gone, and whoever wanted to know
            try:
                while not enough.is_set():
                    if (version := self._data_version(enough)) != last:
                        last = version
                        tell(None)
                    enough.wait(every)
            except Exception as error:
                tell(error)

    def confirm_dead(self, workers: Sequence[str]) -> list[str]:
        return alive.dead(self.path, workers)

    def buried(self, workers: Sequence[str]) -> None:
        alive.bury(self.path, workers)

    def _data_version(self, enough: threading.Event) -> int | None:
        # A lock of its own, because the other one may be held for as long as a write waits.
        with self._watching:
            if enough.is_set():
                return None  # it has been closed, and is not to be opened again
            if self._watcher is None:
                self._watcher = connect(self.path, self.settings)
            (version,) = self._watcher.execute("PRAGMA data_version").fetchone()
            return int(version)

    def _close_watcher(self) -> None:
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.close()

    def twin(self, connections: int | None = None) -> Store:
        twin = SqliteStore(self.address, self.settings)
        twin._checked = self._checked
        return twin

    def close(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.shutdown(wait=True)  # first: what it still does would open them again
        with self._lock:
            self._close_connections()

    def _close_connections(self) -> None:
        if self._pid == os.getpid():
            for connection in (self._reader, self._writer):
                if connection is not None:
                    connection.close()
        self._reader = self._writer = None

    def make_way(self) -> None:
        """Whoever was lent a connection must begin again; with its transaction open, those whose
        locks we are about to take would be waiting for it."""
        for lent in tuple(self._lent):
            with suppress(sqlite3.Error):
                lent.close()

    def before_fork(self) -> None:
        self._lock.acquire()
        self._watching.acquire()
        with suppress(sqlite3.Error):
            self._close_connections()
            self._close_watcher()
        self.make_way()  # once more, of what was lent since

    def after_fork_here(self) -> None:
        self._watching.release()
        self._lock.release()

    def after_fork_in_child(self) -> None:
        super().after_fork_in_child()
        for proof in self._proofs.values():
            proof.forget()
        self._proofs = {}
        self._lock, self._watching = threading.RLock(), threading.Lock()
        self._thread = None
        self._lent = set()

    async def aclose(self) -> None:
        await asyncio.to_thread(self.close)


class SqliteSession:
    """One operation: reads go to the reader until something is written or BEGIN is said."""

    def __init__(self, store: SqliteStore, queries: dict[str, Query]) -> None:
        self.store = store
        self.queries = queries
        self.began = False

    def __enter__(self) -> SqliteSession:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self.began:
            if kind is None:
                self._commit()
            else:
                self._roll_back()

    def answer(self, step: Step) -> Any:
        if isinstance(step, Begin):
            self._begin()
            return None
        statements = step if isinstance(step, Together) else (step,)
        alone = not self.began and not all(self.queries[s.name].reads for s in statements)
        if alone:
            self._begin()
        connection = self.store.writer if self.began else self.store.reader
        answers = [run(connection, self.queries[s.name], s) for s in statements]
        if alone:
            self._commit()
        return answers if isinstance(step, Together) else answers[0]

    def _begin(self) -> None:
        if not self.began:
            self.store.writer.execute("BEGIN IMMEDIATE")
            self.began = True

    def _commit(self) -> None:
        try:
            self.store.writer.execute("COMMIT")
        except sqlite3.Error:
            self._roll_back()
            raise
        self.began = False
        self.store.committed()

    def _roll_back(self) -> None:
        self.began = False
        with suppress(sqlite3.Error):  # SQLite may have rolled back by itself
            self.store.writer.execute("ROLLBACK")
