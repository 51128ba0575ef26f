"""Store: the interface that runs operations, with reconnects and retries."""

from __future__ import annotations

import asyncio
import itertools
import math
import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import ClassVar, ParamSpec, Protocol, TypeVar
from weakref import WeakSet

from ..model.errors import Contention, StoreBusy, StoreError, StoreUnavailable
from ..model.settings import StoreSettings
from ..ops.operation import CREATES_DATABASE, Op
from . import close_at_exit, forks
from .address import Address
from .schema import SchemaMigration
from .statements import Query, queries

T = TypeVar("T")
P = ParamSpec("P")


class OperationRunner(Protocol):
    """Runs operations: a store, or a server on behalf of a remote worker."""

    def run(self, operation: Callable[P, Op[T]], *args: P.args, **kwargs: P.kwargs) -> T: ...

    async def arun(self, operation: Callable[P, Op[T]], *args: P.args, **kwargs: P.kwargs) -> T: ...


class ArchivePartitions(Protocol):
    """Creates and drops the tables of the archive, one for each day."""

    def create(self, day: int) -> bool: ...

    def drop(self, name: str) -> None: ...


class Store(ABC):
    """A database. Operations are passed as a function and its arguments, so that they can be
    restarted after a broken connection: each is idempotent or fenced, so a restart is always
    safe."""

    MAX_TRIES: ClassVar[int] = 6
    can_notify: ClassVar[bool] = False  # whether workers can be notified of new jobs
    can_copy: ClassVar[bool] = False  # whether `BulkInsert` works on its connections
    pooled: bool = False  # whether a pooler shares the server's sessions
    thread_bound: ClassVar[bool] = False  # whether each thread has a connection of its own
    partitions: ArchivePartitions | None = None  # of the archive; None: this database has none
    holds_liveness_lock = False  # whether a liveness lock is held for the worker that listens here

    def __init__(self, address: Address, settings: StoreSettings) -> None:
        self.address = address
        self.settings = settings
        self.queries: dict[str, Query] = queries(address.dialect, address.schema)
        self.callers: WeakSet[object] = (
            WeakSet()
        )  # callers' connections known to lead to this database
        self.addresses: set[tuple[str, int, str]] = set()  # of this store's own connections
        self.breaks = 0  # connections that broke under an operation, which may have committed
        self._checked = False
        self._checking = threading.RLock()
        forks.register(self)
        close_at_exit.close_at_exit(self)

    @property
    def channel(self) -> str:
        """The channel of job notifications."""
        return f"outlast.{self.address.schema}"

    @property
    def events_channel(self) -> str:
        """The channel of event notifications."""
        return f"{self.channel}.events"

    def run(self, operation: Callable[P, Op[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an operation on a connection of this store."""
        if not self._checked:
            self.ready(operation in CREATES_DATABASE)
        return self.retrying(lambda: self.run_once(operation(*args, **kwargs)))

    def retrying(self, attempt: Callable[[], T]) -> T:
        """Retry if the connection broke."""
        until = time.monotonic() + self.settings.deadline
        for tried in itertools.count(1):
            try:
                return attempt()
            except (StoreUnavailable, Contention) as error:
                if (wait := self._pause(error, tried, until)) is None:
                    raise
            time.sleep(wait)
        raise AssertionError("unreachable")

    async def arun(self, operation: Callable[P, Op[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an operation on an asyncio connection of this store."""
        if not self._checked:
            await self.aready(operation in CREATES_DATABASE)
        return await self.aretrying(lambda: self.arun_once(operation(*args, **kwargs)))

    async def aretrying(self, attempt: Callable[[], Awaitable[T]]) -> T:
        until = time.monotonic() + self.settings.deadline
        for tried in itertools.count(1):
            try:
                return await attempt()
            except (StoreUnavailable, Contention) as error:
                if (wait := self._pause(error, tried, until)) is None:
                    raise
            await asyncio.sleep(wait)
        raise AssertionError("unreachable")

    def _pause(self, error: StoreError, tried: int, until: float) -> float | None:
        """Seconds to wait after this error before the next try; None: no retry. A broken connection
        is replaced at once. There is no retry if no connection can be opened, or after the
        deadline: the caller decides then."""
        if isinstance(error, Contention):
            return None if tried == self.MAX_TRIES else random.uniform(0, 0.01 * 2**tried)
        if not error.facts.get("broke"):
            return None
        self.breaks += 1
        return 0.0 if tried <= 2 and time.monotonic() < until else None

    def ready(self, create: bool = True) -> None:
        """Check once per store that the tables exist in a compatible version."""
        if not self._checked:
            with self._checking:
                if not self._checked:
                    self.retrying(lambda: self.prepare_schema(create))
                    self._checked = True

    async def aready(self, create: bool = True) -> None:
        if not self._checked:
            await asyncio.to_thread(self.ready, create)

    def ready_beside_caller(self, create: bool = True) -> None:
        """The same check for a caller whose open transaction may block it."""
        try:
            self.ready(create)
        except StoreBusy as error:
            raise StoreBusy(
                reason="the tables do not exist yet, and an open transaction, perhaps your own,"
                " blocks their creation: call migrate() before it, when your program starts"
            ) from error

    async def aready_beside_caller(self, create: bool = True) -> None:
        if not self._checked:
            await asyncio.to_thread(self.ready_beside_caller, create)

    def leads_here(self, driver: object) -> bool:
        """Whether a caller's connection is known to be this store's own."""
        return False

    @abstractmethod
    def prepare_schema(self, create: bool) -> None:
        """Refuse incompatible tables. Missing ones are created, or refused with `NoDatabase`,
        without any change on the server or on disk."""

    @abstractmethod
    def migrate(self) -> list[int]:
        """Migrate the tables to this release; returns the applied versions."""

    @abstractmethod
    def pending_migrations(self) -> tuple[SchemaMigration, ...]:
        """The migrations that `migrate` would apply; changes nothing."""

    @abstractmethod
    def run_once(self, op: Op[T]) -> T: ...

    @abstractmethod
    async def arun_once(self, op: Op[T]) -> T: ...

    @abstractmethod
    async def listen_for_jobs(
        self, worker: str, notify: Callable[[str], None], every: float
    ) -> None:
        """Call `notify` with the name of each changed queue ("" for any), for ever, and hold the
        worker's liveness lock meanwhile. May fail: the caller retries; until then, polling finds
        the jobs, and leases hold."""

    @abstractmethod
    async def listen_for_events(self, notify: Callable[[], None], every: float) -> None:
        """Call `notify` when there may be new events, for ever. May fail like `listen_for_jobs`.
        Without notifications it only waits, and the caller polls."""

    @abstractmethod
    def confirm_dead(self, workers: Sequence[str]) -> list[str]:
        """The suspected workers that are dead."""

    @abstractmethod
    def confirm_locked(self, workers: Sequence[str]) -> list[str]:
        """The workers that really hold their liveness lock."""

    def forget_workers(self, workers: Sequence[str]) -> None:  # noqa: B027
        """Remove the liveness files of workers that are gone for good."""

    def close_borrowed(self) -> None:  # noqa: B027
        pass

    def before_fork(self) -> None:  # noqa: B027
        """See `forks`. Connections to PostgreSQL detect a fork on their own."""

    def after_fork_here(self) -> None:  # noqa: B027
        pass

    def after_fork_in_child(self) -> None:
        self._checking = threading.RLock()
        self.holds_liveness_lock = False

    @abstractmethod
    def clone(self, connections: int | None = None, lock_timeout: float | None = None) -> Store:
        """Another store for the same database, with its own connections, their maximum number and
        its own lock timeout."""

    def _clone_settings(self, connections: int | None, lock_timeout: float | None) -> StoreSettings:
        return replace(
            self.settings,
            pool_size=connections or self.settings.pool_size,
            lock_timeout=min(lock_timeout or math.inf, self.settings.lock_timeout),
        )

    def hot_path_clone(self) -> Store:
        """A store for a worker's frequent statements; with its own connection where that pays."""
        return self

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    async def aclose(self) -> None: ...
