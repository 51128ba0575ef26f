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
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from ..model.errors import StoreError
from ..model.settings import StoreSettings
from ..ops.duties import prove_life
from ..ops.statement import Op
from . import alive, schema
from .address import Address
from .base import Store
from .filesystem import refuse_network_file_system
from .runner import drive
from .sqlite_files import connect, create_private, transaction, understood
from .sqlite_session import SqliteSession
from .sqlite_watch import Watcher
from .statements import SQLITE

T = TypeVar("T")


class SqliteStore(Store):
    def __init__(self, address: Address, settings: StoreSettings) -> None:
        super().__init__(address, settings)
        assert address.path is not None
        self.path: Path = address.path
        self._lock = threading.RLock()
        self._pid = 0
        self._forgotten: list[sqlite3.Connection] = []
        self._commits = 0
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._watcher = Watcher(lambda: connect(self.path, self.settings))
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
        """Any commit of others may be news. A locked file is the proof of life meanwhile."""
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
        await self._watcher.follow(woken, every)

    def confirm_dead(self, workers: Sequence[str]) -> list[str]:
        return alive.dead(self.path, workers)

    def buried(self, workers: Sequence[str]) -> None:
        alive.bury(self.path, workers)

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
        self._watcher.before_fork()
        with suppress(sqlite3.Error):
            self._close_connections()
        self.make_way()  # once more, of what was lent since

    def after_fork_here(self) -> None:
        self._watcher.after_fork_here()
        self._lock.release()

    def after_fork_in_child(self) -> None:
        super().after_fork_in_child()
        for proof in self._proofs.values():
            proof.forget()
        self._proofs = {}
        self._lock = threading.RLock()
        self._watcher.after_fork_in_child()
        self._thread = None
        self._lent = set()

    async def aclose(self) -> None:
        await asyncio.to_thread(self.close)
