"""Assembly of a local worker, whose parts use the database."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from ..model.claim import Claim
from ..model.ids import INSTANCE_VARIABLE, new_instance_id
from ..model.outcome import Transition
from ..model.settings import WorkerSettings
from ..ops.claim import ClaimRequest
from ..ops.finish import Finished
from ..ops.finish_and_claim import finish_and_claim
from ..store import Store
from .breaker import Breakers
from .context import Context
from .finished_jobs import FinishedJobs
from .finisher import Finisher
from .heartbeat import HeartbeatThread
from .in_flight import InFlight
from .job_source import DatabaseSource
from .leases import DatabaseLeases
from .maintenance import AppParts, Maintenance, Outcomes, Signals
from .protocols import HeartbeatListener, LeaseHolder
from .registration import Registration
from .runner import JobRunner
from .schedules import KnownSchedules
from .shared import WorkerShared
from .state import WorkerState
from .threads import Threads
from .waits import HandlerOperations
from .worker import Worker
from .worker_metrics import WorkerMetrics

if TYPE_CHECKING:
    from ..client.client import Outlast


def local_worker(
    app: Outlast,
    queues: Sequence[str] | None,
    settings: WorkerSettings,
    lease_holder: MakeLeases | None = None,
    metrics: WorkerMetrics | None = None,
) -> Worker:
    """A worker for these queues, by default all. Its leases are renewed by a heartbeat thread,
    unless `lease_holder` creates another holder."""
    shared = _shared(app, queues, settings, metrics)
    store, hot_store, wakeup = app.store, app.store.hot_path_clone(), shared.wakeup
    breakers, operations = Breakers(lambda: shared.state.id), HandlerOperations(store, hot_store)
    registration = Registration(
        hot_store, shared, app.registry.names, settings.concurrency, app._adeclare_queues,
        owned=hot_store is not store,
    )  # fmt: skip
    # The parts call each other: these functions are called after all parts exist.

    def became_ready(queues: set[str]) -> None:
        source.became_ready(queues)

    def deliver(job: InFlight) -> None:
        sink.add(job)
        wakeup.set()

    def add_event(claim: Claim, kind: str, data: str, n: int | None = None) -> None:
        if sink.add_event(claim, kind, data, n):
            wakeup.call_soon(wakeup.set)

    def context(claim: Claim) -> Context:
        given = Context(claim, add_event, operations, sink.pending_events, app.blobs, store=store)
        given.check_tenants = app._parts.check_tenants
        return given

    runner = JobRunner(
        app.registry, shared, breakers, context=context, deliver=deliver, slot_freed=wakeup.set
    )
    finished = FinishedJobs(shared.in_flight, shared.metrics, became_ready)
    sink = database_sink(hot_store, store, shared, finished, runner)
    leases = (lease_holder or heartbeat)(
        app, registration, shared, runner,
        Outcomes(runner.decide, finished.refused, sink.trouble),
        SourceCallbacks(
            became_ready, shared.in_flight.disown,
            KnownSchedules(app.registry.names, lambda: app.registry.schedules),
        ),
    )  # fmt: skip
    source = DatabaseSource(registration, shared, breakers, runner, sink, leases)
    finished.on_freed = source.poller.slot_freed
    return Worker(app, shared, source, sink, leases, runner)


def _shared(
    app: Outlast,
    queues: Sequence[str] | None,
    settings: WorkerSettings,
    metrics: WorkerMetrics | None,
) -> WorkerShared:
    # Random at every start, so that no worker is taken for a dead one; a supervisor chooses it for
    # its child, so that it knows whose jobs to reclaim.
    id = os.environ.pop(INSTANCE_VARIABLE, "") or new_instance_id()
    served = None if queues is None else sorted(set(queues))
    services = app._worker_services(sources=settings.sources)
    return WorkerShared(
        WorkerState(id, settings, served), Threads(settings.concurrency),
        metrics=metrics or WorkerMetrics(), services=services,
    )  # fmt: skip


def database_sink(
    hot_store: Store, store: Store, shared: WorkerShared, finished: FinishedJobs, runner: JobRunner
) -> Finisher:
    async def exchange(
        plain: list[Transition], request: ClaimRequest | None
    ) -> tuple[Finished, list[Claim]]:
        return await hot_store.arun(finish_and_claim, plain, request)

    counts = shared.metrics.counts
    return Finisher(store, shared.in_flight, counts, finished.apply, runner.decide, exchange)


class MakeLeases(Protocol):
    """Creates the lease holder of a worker, as `heartbeat` does."""

    def __call__(
        self,
        app: Outlast,
        registration: Registration,
        shared: WorkerShared,
        runner: JobRunner,
        outcomes: Outcomes,
        source: SourceCallbacks,
    ) -> LeaseHolder: ...


@dataclass(frozen=True, slots=True)
class SourceCallbacks:
    """Callbacks of the heartbeat thread to a source. `became_ready` is called in the worker's loop,
    `disown` in the heartbeat thread."""

    became_ready: Callable[[set[str]], None]
    disown: Callable[[Claim], bool]  # refuse a claim that has not arrived; False: it has
    schedules: KnownSchedules


def heartbeat(
    app: Outlast,
    registration: Registration,
    shared: WorkerShared,
    runner: JobRunner,
    outcomes: Outcomes,
    source: SourceCallbacks,
) -> HeartbeatThread:
    """The heartbeat thread of a process that is registered in the database."""

    def make_maintenance(store: Store, listener: HeartbeatListener) -> Maintenance:
        post = shared.wakeup.call_soon
        signals = Signals(
            poll=partial(post, listener.on_notify, ""),
            ready=partial(post, source.became_ready),
            notify=thread.notify,
            cancelled=thread.renew_now,
        )
        parts = AppParts(app.retention, app.blobs, source.schedules)
        return Maintenance(store, shared, outcomes, signals, parts)

    leases = DatabaseLeases(registration, shared, runner, source.disown, make_maintenance)
    thread = HeartbeatThread(leases, shared, runner, deadline=registration.store.settings.deadline)
    return thread
