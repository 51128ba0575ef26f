"""Whom an endpoint speaks for."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

from ..store import Store
from ..worker.figures import Figures
from ..worker.supervisor import Supervisor
from ..worker.worker import Worker
from .catalogue import Who
from .gauges import Gauges
from .health import PAUSED, Verdict, supervisor_alive, worker_alive, worker_ready
from .sources import Sample, supervising, working


class Subject(ABC):
    role: str
    who: tuple[Who, ...]
    store: Store | None  # None: there is no database here

    @abstractmethod
    def samples(self) -> Iterable[Sample]:
        """What it did. Called from another thread."""

    @abstractmethod
    def alive(self) -> Verdict: ...

    def ready(self) -> Verdict:
        """Apart from the database, which is asked by whoever asks this."""
        return Verdict()

    def pulse(self) -> None:  # noqa: B027
        """Called once a second, from another thread."""


class OneWorker(Subject):
    role = "worker"
    who: tuple[Who, ...] = (Who.TABLES, Who.PROCESS, Who.WORKER, Who.WORK)

    def __init__(self, worker: Worker) -> None:
        self.store: Store | None = worker.store
        self._worker = worker
        self._pulse_at = time.monotonic()

    def samples(self) -> Iterable[Sample]:
        return working(self._worker)

    def alive(self) -> Verdict:
        return worker_alive(self._worker)

    def ready(self) -> Verdict:
        return worker_ready(self._worker)

    def pulse(self) -> None:
        """The keeper asks for these too, but it is not there before the database is."""
        now = time.monotonic()
        if now - self._pulse_at > PAUSED:
            self._worker.beat_at = now  # the whole process stood still, and not its loop
        self._pulse_at = now
        self._worker.post(self._worker.beat)


class OneRemoteWorker(OneWorker):
    """What is in the tables is told where they are."""

    who = (Who.PROCESS, Who.WORKER, Who.WORK)

    def __init__(self, worker: Worker, connected: Callable[[], bool]) -> None:
        super().__init__(worker)
        self.store = None
        self._connected = connected

    def ready(self) -> Verdict:
        verdict = super().ready()
        if verdict.good and not self._connected():
            return Verdict(("the server does not answer",))
        return verdict


class OneService(Subject):
    """Who can be asked goes round: it is its own event loop that answers."""

    role = "service"
    who = (Who.TABLES, Who.PROCESS, Who.SERVICE)

    def __init__(self, gauges: Gauges) -> None:
        self._gauges = gauges

    def samples(self) -> Iterable[Sample]:
        return self._gauges.samples()

    def alive(self) -> Verdict:
        return Verdict()


class OneSupervisor(Subject):
    role = "supervisor"
    who = (Who.TABLES, Who.PROCESS, Who.SUPERVISOR, Who.WORK)

    def __init__(
        self, supervisor: Supervisor, store: Store | None, figures: Figures, live_within: float
    ) -> None:
        self.store = store
        self._supervisor = supervisor
        self._figures = figures
        self._live_within = live_within

    def samples(self) -> Iterable[Sample]:
        return supervising(self._supervisor, self._figures)

    def alive(self) -> Verdict:
        return supervisor_alive(self._supervisor, self._live_within)
