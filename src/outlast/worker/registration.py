"""Registration of a worker: its row in the table of workers."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from json import dumps

from ..loops import Backoff
from ..model.errors import PERMANENT_ERRORS, StoreError
from ..ops import workers as worker_ops
from ..ops.workers import deregister
from ..store import Store
from ..version import VERSION
from .shared import WorkerShared
from .state import WorkerState

log = logging.getLogger("outlast.worker")

LIVENESS_WAIT_S = 1.0  # before the first claim, for a liveness lock that is unavailable


def registration_row(
    state: WorkerState, tasks: Sequence[str], concurrency: int
) -> dict[str, object]:
    """The row of a worker in the table of workers."""
    return {
        "id": state.id,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "queues": None if state.queues is None else dumps(state.queues),
        "tasks": dumps(tasks),
        "concurrency": concurrency,
        "version": VERSION,
        "lease": state.settings.lease,
    }


class Registration:
    """Registers a worker with the names of its `tasks`; `declare` stores what the code declares
    about queues. `owned`: the store is closed with it."""

    def __init__(
        self,
        store: Store,
        shared: WorkerShared,
        tasks: Callable[[], list[str]],
        concurrency: int,
        declare: Callable[[], Awaitable[None]],
        *,
        owned: bool,
    ) -> None:
        self.store = store
        self.owned = owned
        self._state = shared.state
        self._wakeup = shared.wakeup
        self._outage = shared.outage
        self._tasks = tasks
        self._concurrency = concurrency
        self._declare = declare
        self.proven = asyncio.Event()  # liveness lock held, listening for notifications
        self._watch_failed = False

    def row(self) -> dict[str, object]:
        return registration_row(self._state, self._tasks(), self._concurrency)

    async def register(self) -> None:
        """Register; waits for an unavailable database."""
        backoff = Backoff()
        while not self._state.stopping:
            try:
                await self._declare()
                await self.store.arun(worker_ops.register, self.row())
                self._outage.answered()
                return
            except PERMANENT_ERRORS:
                raise
            except StoreError as error:
                wait = backoff.failed()
                if not self._outage.logs(error, wait):
                    log.warning("%s; next try in %.1f s", error, wait)
                await self._wakeup.wait_out_failure(wait, self._state.stopping)

    def watch_failed(self) -> None:
        """The watch failed: the liveness lock may be unavailable for a while."""
        self._watch_failed = True
        self._wakeup.set()

    async def wait_for_liveness(self, watched: Callable[[], bool]) -> None:
        """Wait for the liveness lock, for a lease at most: without it, jobs of a dead worker are
        reclaimed only when their leases expire. `watched`: whether the heartbeat thread, which
        takes the lock, is alive."""
        began = time.monotonic()
        while not self.proven.is_set() and not self._state.stopping and watched():
            most = LIVENESS_WAIT_S
            if not self._watch_failed:
                most = max(most, self._state.settings.lease)
            if (left := began + most - time.monotonic()) <= 0.0:
                return
            await self._wakeup.wait(left)

    async def deregister(self) -> None:
        """Deregister before the liveness lock is released: with a slow database, other workers
        would otherwise consider this one dead."""
        with suppress(StoreError):  # other workers will detect the death
            await self.store.arun(deregister, self._state.id)

    async def aclose(self) -> None:
        if self.owned:
            await self.store.aclose()
