"""Polling workers between their polls: renewals count as heartbeats, and their tasks are known."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING

from ...model.claim import ClaimKey
from ...ops import workers as worker_ops
from ...store import Store
from ...worker.poller import Poller
from .worker_info import RemoteWorkerInfo

if TYPE_CHECKING:
    from .stream import WorkerStream

POLLER_KNOWN_S = 300.0  # seconds after its last poll or renewal until a worker counts as gone


class PollingWorkers:
    def __init__(
        self,
        store: Store,
        heartbeat_every: float,
        spawn: Callable[[Coroutine[object, object, object]], object],
    ) -> None:
        self._store, self._every, self._spawn = store, heartbeat_every, spawn
        self._known: dict[str, tuple[RemoteWorkerInfo, float]] = {}
        self._unaccepted: dict[str, WorkerStream] = {}  # polls that were answered with jobs
        self._pollers: dict[str, Poller] = {}  # the turns of queues, from one poll to the next
        self._heartbeat_at: dict[str, float] = {}

    def polled(self, stream: WorkerStream, unaccepted: bool) -> None:
        """Note the response to a poll, and whether it has jobs to be accepted."""
        now, info = time.monotonic(), stream.info
        if unaccepted:
            self._unaccepted[info.worker] = stream
        self._pollers[info.worker] = stream.poller
        self._known[info.worker] = info, now + POLLER_KNOWN_S
        self._heartbeat_at[info.worker] = now + self._every
        for worker in [name for name, (_, until) in self._known.items() if until < now]:
            self.left(worker)

    def previous(self, worker: str) -> WorkerStream | None:
        """The last poll of this worker, if its jobs may not be accepted yet."""
        return self._unaccepted.pop(worker, None)

    def poller(self, info: RemoteWorkerInfo) -> Poller | None:
        """The poller of this worker's last poll, if it requested the same jobs."""
        known, poller = self._known.get(info.worker), self._pollers.get(info.worker)
        if known is None or poller is None:
            return None
        before = known[0]
        wish = info.queues, info.tasks, info.tenant
        if wish != (before.queues, before.tasks, before.tenant):
            return None
        poller.resume()
        return poller

    def answered(self) -> list[WorkerStream]:
        """Polls whose jobs may not be accepted yet."""
        return list(self._unaccepted.values())

    def left(self, worker: str) -> None:
        self._unaccepted.pop(worker, None)
        self._known.pop(worker, None)
        self._pollers.pop(worker, None)
        self._heartbeat_at.pop(worker, None)

    def renewed(self, holds: Iterable[ClaimKey]) -> None:
        """Note renewed claims, whose workers are alive."""
        if not self._known:
            return
        now = time.monotonic()
        held: dict[str, int] = {}
        for _, _, worker in holds:
            held[worker] = held.get(worker, 0) + 1
        for worker, number in held.items():
            if worker in self._known and now >= self._heartbeat_at[worker]:
                self._known[worker] = self._known[worker][0], now + POLLER_KNOWN_S
                self._heartbeat_at[worker] = now + self._every
                self._spawn(self._store.arun(worker_ops.heartbeat, worker, number, "working"))

    def tasks(self) -> set[str]:
        now = time.monotonic()
        return {task for info, until in self._known.values() if until > now for task in info.tasks}
