"""A store: the place where operations are carried out, with reconnects and retries."""

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
from typing import Any, ClassVar, ParamSpec, Protocol, TypeVar
from weakref import WeakSet

from ..model.errors import Contention, StoreBusy, StoreError, StoreUnavailable
from ..model.settings import StoreSettings
from ..ops.operation import CREATES_DATABASE, Op
from . import close_at_exit, forks
from .address import Address
from .statements import Query, queries

T = TypeVar("T")
P = ParamSpec("P")


class OperationRunner(Protocol):
    """Carries out operations: a store, or a server on behalf of a remote worker."""

    def run(self, operation: Callable[P, Op[T]], *args: P.args, **kwargs: P.kwargs) -> T: ...

    async def arun(self, operation: Callable[P, Op[T]], *args: P.args, **kwargs: P.kwargs) -> T: ...


class Store(ABC):
    """Where rows live. Operations are given as a function and its arguments, so that one whose
    connection broke can be started again: each is idempotent or fenced, so that is always safe."""

    MAX_TRIES: ClassVar[int] = 6
    can_notify: ClassVar[bool] = False  # whether workers can be told that something is new
    holds_liveness_lock = False  # whether a liveness lock is held for the worker that watches here

    def __init__(self, address: Address, settings: StoreSettings) -> None:
        self.address = address
        self.settings = settings
        self.queries: dict[str, Query] = queries(address.dialect, address.schema)
        self.callers: WeakSet[Any] = WeakSet()  # others' connections that lead here
        self.addresses: set[tuple[str, int, str]] = set()  # where our own connections went
        self._checked = False
        self._checking = threading.Lock()
        forks.register(self)
        close_at_exit.close_at_exit(self)

    @property
    def channel(self) -> str:
        """The name under which wake-ups travel."""
        return f"outlast.{self.address.schema}"

    @property
    def events_channel(self) -> str:
        """Under which those who follow events are told to look."""
        return f"{self.channel}.events"

    def run(self, operation: Callable[P, Op[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Carry out an operation on a connection of our own."""
        self.ready(operation in CREATES_DATABASE)
        return self.retrying(lambda: self.run_once(operation(*args, **kwargs)))

    def retrying(self, attempt: Callable[[], T]) -> T:
        """Try again if the connection broke on the way."""
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
        """The same, on an asyncio connection."""
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
        """How long to wait after this error before the next try; None gives up. A connection found
        broken is replaced at once, one that cannot be had is not waited for, and neither is one
        after the deadline: that is the caller's decision."""
        if isinstance(error, Contention):
            return None if tried == self.MAX_TRIES else random.uniform(0, 0.01 * 2**tried)
        again = tried <= 2 and time.monotonic() < until
        return 0.0 if again and error.facts.get("broke") else None

    def ready(self, create: bool = True) -> None:
        """Once per store: the tables are there, and of a version that we can work with."""
        if not self._checked:
            with self._checking:
                if not self._checked:
                    self.retrying(lambda: self.prepare_schema(create))
                    self._checked = True

    async def aready(self, create: bool = True) -> None:
        if not self._checked:
            await asyncio.to_thread(self.ready, create)

    def ready_beside_caller(self) -> None:
        """The same, for a caller whose open transaction may be what is in the way."""
        try:
            self.ready()
        except StoreBusy as error:
            raise StoreBusy(
                reason="the tables are not there yet, and an open transaction, perhaps your own,"
                " keeps them from being made: call migrate() before it, when your program starts"
            ) from error

    async def aready_beside_caller(self) -> None:
        if not self._checked:
            await asyncio.to_thread(self.ready_beside_caller)

    @abstractmethod
    def prepare_schema(self, create: bool) -> None:
        """Refuse tables that do not fit. Missing ones are created, or refused with `NoDatabase`:
        then nothing is changed, on the server or on disk."""

    @abstractmethod
    def migrate(self) -> list[int]:
        """Bring the tables up to this release; the versions that were applied."""

    @abstractmethod
    def run_once(self, op: Op[T]) -> T: ...

    @abstractmethod
    async def arun_once(self, op: Op[T]) -> T: ...

    @abstractmethod
    async def listen_for_jobs(
        self, worker: str, notify: Callable[[str], None], every: float
    ) -> None:
        """Call `woken` with the name of a queue that changed (or "" for any), for ever, and hold
        the worker's liveness lock meanwhile. May fail: then whoever watches tries again; polling
        finds everything meanwhile, and leases hold."""

    @abstractmethod
    async def listen_for_events(self, notify: Callable[[], None], every: float) -> None:
        """Call `woken` when there may be new events, for ever. May fail, as `watch` may; and where
        nobody can tell, it only waits: whoever follows looks by himself now and then."""

    @abstractmethod
    def confirm_dead(self, workers: Sequence[str]) -> list[str]:
        """Those of the workers with a sign of death that are dead."""

    @abstractmethod
    def confirm_locked(self, workers: Sequence[str]) -> list[str]:
        """Those of the workers that seem to hold their liveness lock that do."""

    def forget_workers(self, workers: Sequence[str]) -> None:  # noqa: B027
        """They are gone for good: clear away what proved their lives."""

    def close_borrowed(self) -> None:  # noqa: B027
        pass

    def before_fork(self) -> None:  # noqa: B027
        """See `forks`. Connections to PostgreSQL know by themselves whose they are."""

    def after_fork_here(self) -> None:  # noqa: B027
        pass

    def after_fork_in_child(self) -> None:
        self._checking = threading.Lock()
        self.holds_liveness_lock = False

    @abstractmethod
    def clone(self, connections: int | None = None, lock_timeout: float | None = None) -> Store:
        """Another store for the same place, with connections of its own: so many at the most, and
        with a lock timeout of its own."""

    def _clone_settings(self, connections: int | None, lock_timeout: float | None) -> StoreSettings:
        return replace(
            self.settings,
            pool_size=connections or self.settings.pool_size,
            lock_timeout=min(lock_timeout or math.inf, self.settings.lock_timeout),
        )

    def hot_path_clone(self) -> Store:
        """One for what a worker says over and over: where it pays, with a connection of its own."""
        return self

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    async def aclose(self) -> None: ...
