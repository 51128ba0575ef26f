"""Targets: the process that a metrics endpoint reports on."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

from ..store import Store
from ..worker.supervisor import Supervisor
from ..worker.worker import Worker
from ..worker.worker_metrics import WorkerMetrics
from .catalogue import Origin
from .collectors import Sample, supervisor_samples, worker_samples
from .gauges import Gauges
from .health import PROCESS_PAUSE_S, Health, supervisor_alive, worker_alive, worker_ready


class Target(ABC):
    role: str
    origins: tuple[Origin, ...]
    store: Store | None  # None: a process without a database

    @abstractmethod
    def samples(self) -> Iterable[Sample]:
        """Its samples. Called from another thread."""

    @abstractmethod
    def alive(self) -> Health: ...

    def ready(self) -> Health:
        """Readiness apart from the database, which the caller probes itself."""
        return Health()

    def pulse(self) -> None:  # noqa: B027
        """Called once a second, from another thread."""


class WorkerTarget(Target):
    role = "worker"
    origins: tuple[Origin, ...] = (Origin.TABLES, Origin.PROCESS, Origin.WORKER, Origin.WORK)

    def __init__(self, worker: Worker) -> None:
        self.store: Store | None = worker.app.store
        self._worker = worker
        self._pulse_at = time.monotonic()

    def samples(self) -> Iterable[Sample]:
        return worker_samples(self._worker)

    def alive(self) -> Health:
        return worker_alive(self._worker)

    def ready(self) -> Health:
        return worker_ready(self._worker)

    def pulse(self) -> None:
        """Record a heartbeat for a worker whose heartbeat thread has not started: it starts once
        the database is reached."""
        now = time.monotonic()
        if now - self._pulse_at > PROCESS_PAUSE_S:
            # The whole process was paused, not only its loop.
            self._worker.shared.state.beat_at = now
        self._pulse_at = now
        self._worker.call_soon(self._worker.beat)


class RemoteWorkerTarget(WorkerTarget):
    """A remote worker; table metrics come from the server that has the tables."""

    origins = (Origin.PROCESS, Origin.WORKER, Origin.WORK)

    def __init__(self, worker: Worker, connected: Callable[[], bool]) -> None:
        super().__init__(worker)
        self.store = None
        self._connected = connected

    def ready(self) -> Health:
        verdict = super().ready()
        if verdict.ok and not self._connected():
            return Health(("the server does not answer",))
        return verdict


class ServiceTarget(Target):
    """The service; it is alive if it responds, because its own event loop serves the request."""

    role = "service"
    origins = (Origin.TABLES, Origin.PROCESS, Origin.SERVICE)

    def __init__(self, gauges: Gauges) -> None:
        self._gauges = gauges

    def samples(self) -> Iterable[Sample]:
        return self._gauges.samples()

    def alive(self) -> Health:
        return Health()


class SupervisorTarget(Target):
    role = "supervisor"
    origins = (Origin.TABLES, Origin.PROCESS, Origin.SUPERVISOR, Origin.WORK)

    def __init__(
        self,
        supervisor: Supervisor,
        store: Store | None,
        figures: WorkerMetrics,
        live_within: float,
    ) -> None:
        self.store = store
        self._supervisor = supervisor
        self._figures = figures
        self._live_within = live_within

    def samples(self) -> Iterable[Sample]:
        return supervisor_samples(self._supervisor, self._figures)

    def alive(self) -> Health:
        return supervisor_alive(self._supervisor, self._live_within)
