"""The SQLite store: one file, nothing to set up, safe to kill at any instruction.

Each process has one connection that writes and one that reads. Every write is a transaction begun
with BEGIN IMMEDIATE, so it never has to upgrade a lock; readers never wait. Commits are synced to
disk (synchronous=FULL).

Only Outlast makes checkpoints, under the write lock: SQLite before 3.51.3 can lose the end of a log
that a commit restarts while a checkpoint runs (the "WAL-reset" race), and that lock excludes
commits.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from ...model.errors import NoDatabase, StoreError, StoreUnavailable
from ...model.settings import StoreSettings
from ...ops.operation import Op, Step
from ...ops.workers import prove_liveness
from .. import forks, schema
from ..address import Address
from ..base import Store
from ..dialects import SQLITE
from ..runner import ENCODING_ERRORS, drive
from . import liveness
from .checkpointer import Checkpointer
from .commit_group import CommitGroup, PendingCommit, commit_together
from .connection import connect, create_private, has_table, is_disk_full, translate_errors
from .file_identity import FileConnection, file_gone_error, file_lost_error, identity_of
from .filesystem import refuse_network_file_system
from .guarded_connection import GuardedConnection, close_all
from .migration import check_tables, migrate, read_version
from .session import SqliteSession
from .watch import CommitWatcher

T = TypeVar("T")

log = logging.getLogger("outlast.store")


class SqliteStore(Store):
    can_copy = True

    def __init__(self, address: Address, settings: StoreSettings) -> None:
        super().__init__(address, settings)
        assert address.path is not None
        self.path: Path = address.path
        self._lock = threading.RLock()
        self._group = CommitGroup()
        self._joining: set[int] = set()  # threads that are in line for the writer
        self._pid = 0
        self._forgotten: list[sqlite3.Connection] = []
        self._checkpointer = Checkpointer(self.path, settings.checkpoint_pages)
        self._writer: FileConnection | None = None
        self._reader: FileConnection | None = None
        self._known = False  # whether the file has been open: then it is never created again
        self._watcher = CommitWatcher(lambda: connect(self.path, self.settings))
        self._borrowed: set[GuardedConnection] = set()
        self._thread: ThreadPoolExecutor | None = None
        self._liveness_files: dict[str, liveness.LivenessFile] = {}

    def run_once(self, op: Op[T]) -> T:
        lock = self._lock
        if not lock.acquire(blocking=False):
            return self._run_in_line(op)
        try:
            return self._run_in_line(op, locked=True) if self._group else self._run(op)
        finally:
            lock.release()

    def _run_in_line(self, op: Op[T], *, locked: bool = False) -> T:
        """A signal handler may have interrupted its own thread in the line: it joins no group,
        which that thread may have to lead."""
        me = threading.get_ident()
        if me in self._joining:
            with self._lock:
                return self._run(op)
        self._joining.add(me)
        try:
            return self._run_beside_others(op, locked=locked)
        finally:
            self._joining.discard(me)

    def _run(self, op: Op[T], first: Step | None = None) -> T:
        with translate_errors():
            try:
                self._open()
                return drive(op, SqliteSession(self, self.queries), first)
            except sqlite3.OperationalError as error:
                # If the log cannot grow because the disk is full, copy it into the database, which
                # may need no more space, and retry the operation.
                if is_disk_full(error) and self._checkpoint_freed_space():
                    raise StoreUnavailable(reason=str(error), broke=True) from error
                raise

    def _run_beside_others(self, op: Op[T], *, locked: bool = False) -> T:
        """Run an operation while other threads wait for the writer: as part of a group, if its
        first statement is all that it commits."""
        try:
            first = op.send(None)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        member = self._group.join(first)
        if member is not None:
            if locked or member.leads:
                self._commit_group(member)
            else:
                member.over.acquire()
        if member is None or member.answer is None:
            with self._lock:
                return self._run(op, first)
        try:
            more = op.send(member.answer)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        with self._lock:
            return self._run(op, more)

    def _commit_group(self, member: PendingCommit) -> None:
        """Commit the statements of a member's group, if there are several. After an error,
        each member runs its own operation."""
        try:
            self._lock.acquire()
        except BaseException:  # Ctrl-C: the other members run alone
            with self._group.closed():
                raise
        try:
            if not member.over.locked():
                return  # a later thread got the writer first
            with self._group.closed() as members:
                if len(members) > 1:
                    with suppress(StoreError, sqlite3.Error, OSError, *ENCODING_ERRORS):
                        self._open()
                        commit_together(members, SqliteSession(self, self.queries))
        finally:
            self._lock.release()

    async def arun_once(self, op: Op[T]) -> T:
        loop = asyncio.get_running_loop()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "outlast-sqlite")
        # Shielded: a cancelled caller gets its result late, never half a transaction.
        return await asyncio.shield(loop.run_in_executor(self._thread, self.run_once, op))

    @property
    def writer(self) -> FileConnection:
        assert self._writer is not None
        return self._writer

    @property
    def reader(self) -> FileConnection:
        assert self._reader is not None
        return self._reader

    def borrow(self) -> GuardedConnection:
        """A connection for a handler's own writes."""
        with self._lock:
            connection = connect(self.path, self.settings, GuardedConnection)
            assert isinstance(connection, GuardedConnection)
            self._borrowed.add(connection)
            return connection

    def return_borrowed(self, connection: GuardedConnection) -> None:
        connection.close()
        self._borrowed.discard(connection)

    def _open(self, to_migrate: bool = False) -> None:
        if self._writer is not None and self._pid == os.getpid():
            if identity_of(self._writer).is_same_recently():
                return
            self._close_replaced_file(self._writer)
        if self._writer is not None and self._reader is not None:
            # Forked without Python's fork hooks: these belong to the parent, and are
            # neither used nor closed here.
            self._forgotten += [self._writer, self._reader]
            self._thread = None
        refuse_network_file_system(self.path)
        if not self._known:
            create_private(self.path)
        elif not self.path.exists():
            raise file_gone_error(self.path)
        self._pid = os.getpid()
        self._writer = connect(self.path, self.settings)
        # A statement that changes many pages keeps their old contents until it ends: beyond 64 kB
        # in a temporary file, which costs a claim from many lanes a third of its time.
        self._writer.execute("PRAGMA temp_store = MEMORY")
        self._reader = connect(self.path, self.settings)
        if self._known and not to_migrate:
            try:
                check_tables(self._reader, self.path, self.address.schema)
            except BaseException:
                self._close_connections()
                raise
        self._known = True

    def _close_replaced_file(self, connection: FileConnection) -> None:
        """Close the connections to a file that is no longer at its path. If only the log is gone,
        its contents are copied into the database first. While one connection of this process stays
        open, SQLite gives the next one the same old index, so idle ones of other stores are closed,
        too."""
        log.warning("%s: opening %s again", identity_of(connection).loss(), self.path)
        if identity_of(connection).is_in_place:
            with suppress(sqlite3.Error):
                connection.execute("PRAGMA busy_timeout = 200")
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        self._watcher.close_idle()
        self._close_connections()
        for other in forks.registered():
            if isinstance(other, SqliteStore) and other.path == self.path:
                other._close_idle()

    def _close_idle(self) -> None:
        """Close idle connections; the next operation opens new ones."""
        if self._lock.acquire(blocking=False):
            try:
                if self._writer is not None and not self._writer.in_transaction:
                    self._watcher.close_idle()
                    self._close_connections()
            finally:
                self._lock.release()

    def committed(self, connection: FileConnection) -> None:
        """After a commit, check that the file is the one at the path; only then is it
        acknowledged."""
        if not identity_of(connection).is_same():
            reason = identity_of(connection).loss() or f"{self.path} was replaced"
            with self._lock:
                self._close_replaced_file(connection)
            raise file_lost_error(reason)
        if self._checkpointer.is_due():
            with suppress(StoreError):  # the caller's commit is durable; the next one retries
                self.checkpoint()

    def _checkpoint_freed_space(self) -> bool:
        try:
            return self.checkpoint() and self._checkpointer.copied > 0
        except StoreError:
            return False

    def checkpoint(self) -> bool:
        """Copy the log into the database while commits are excluded. False: another process is
        writing."""
        with self._lock, translate_errors():
            self._open()
            return self._checkpointer.run(self.writer, self.reader)

    def prepare_schema(self, create: bool) -> None:
        with self._lock, translate_errors():
            if not create and not has_table(self.path, f"{self.address.schema}_migration"):
                raise NoDatabase(place=f"{self.address} (tables {self.address.schema}_…)")
            self._open()
            found = read_version(self.writer, self.address.schema)
        if not found.version:
            self.migrate()
        else:
            schema.check(found)

    def migrate(self) -> list[int]:
        known = schema.migrations(SQLITE, self.address.schema)
        with self._lock, translate_errors():
            self._open(to_migrate=True)
            return migrate(self.writer, self.address.schema, known)

    def pending_migrations(self) -> tuple[schema.SchemaMigration, ...]:
        known = schema.migrations(SQLITE, self.address.schema)
        with self._lock, translate_errors():
            if not has_table(self.path, f"{self.address.schema}_migration"):
                return known
            self._open()
            return schema.pending(known, read_version(self.writer, self.address.schema))

    async def listen_for_jobs(
        self, worker: str, notify: Callable[[str], None], every: float
    ) -> None:
        """Notify after any commit of another process, which may bring jobs. A locked file is the
        proof of liveness meanwhile."""
        proof = self._liveness_files.setdefault(worker, liveness.LivenessFile(self.path, worker))
        try:
            with translate_errors():
                self.holds_liveness_lock = proof.acquire()
                if self.holds_liveness_lock:
                    await self.arun(prove_liveness, worker)
                await self.listen_for_events(lambda: notify(""), every)
        except asyncio.CancelledError:
            self.holds_liveness_lock = False
            self._liveness_files.pop(worker).release()
            raise

    async def listen_for_events(self, notify: Callable[[], None], every: float) -> None:
        await self._watcher.watch(notify, every)

    def confirm_dead(self, workers: Sequence[str]) -> list[str]:
        return liveness.dead_workers(self.path, workers)

    def confirm_locked(self, workers: Sequence[str]) -> list[str]:
        return liveness.locked_workers(self.path, workers)

    def forget_workers(self, workers: Sequence[str]) -> None:
        liveness.remove_liveness_files(self.path, workers)

    def clone(self, connections: int | None = None, lock_timeout: float | None = None) -> Store:
        settings = self._clone_settings(connections, lock_timeout)
        twin = SqliteStore(self.address, settings)
        twin.queries = self.queries  # with the same clock
        twin._checked, twin._known = self._checked, self._known
        return twin

    def close(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.shutdown(wait=True)  # first: its pending work would open them again
        with self._lock:
            self._close_connections()
            self._known = self._checked = False  # as if never opened: the file may be gone later

    def _close_connections(self) -> None:
        if self._pid == os.getpid():
            for connection in (self._reader, self._writer):
                if connection is not None:
                    connection.close()
        self._reader = self._writer = None

    def close_borrowed(self) -> None:
        """Close lent connections; their handlers must start over. Their open transactions would
        otherwise block the locks that this fork takes."""
        close_all(tuple(self._borrowed))

    def before_fork(self) -> None:
        self._lock.acquire()
        self._watcher.before_fork()
        with suppress(sqlite3.Error):
            self._close_connections()
        self.close_borrowed()  # again, for connections lent since

    def after_fork_here(self) -> None:
        self._watcher.after_fork_here()
        self._lock.release()

    def after_fork_in_child(self) -> None:
        super().after_fork_in_child()
        for proof in self._liveness_files.values():
            proof.forget()
        self._liveness_files = {}
        self._lock = threading.RLock()
        self._group = CommitGroup()
        self._joining = set()
        self._watcher.after_fork_in_child()
        self._thread = None
        self._borrowed = set()

    async def aclose(self) -> None:
        await asyncio.to_thread(self.close)
