"""Whom an endpoint speaks for."""

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
    store: Store | None  # None: there is no database here

    @abstractmethod
    def samples(self) -> Iterable[Sample]:
        """What it did. Called from another thread."""

    @abstractmethod
    def alive(self) -> Health: ...

    def ready(self) -> Health:
        """Apart from the database, which is asked by whoever asks this."""
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
        """The heartbeat thread asks for these too, but it is not there before the database is."""
        now = time.monotonic()
        if now - self._pulse_at > PROCESS_PAUSE_S:
            # The whole process stood still, and not its loop.
            self._worker.shared.state.beat_at = now
        self._pulse_at = now
        self._worker.call_soon(self._worker.beat)


class RemoteWorkerTarget(WorkerTarget):
    """What is in the tables is told where they are."""

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
    """Who can be asked goes round: it is its own event loop that answers."""

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
