"""A worker: claims jobs, runs their handlers, reports their outcomes.

    source    provides jobs                  executor  runs handlers and stops them
    sink      stores outcomes and events     leases    renews claims, in its own thread

A local worker's parts talk to the database (`worker/local.py`), a remote one's to a server
(`remote/worker.py`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from ..loops import Backoff
from ..model.errors import OutlastError
from ..model.humanize import format_duration
from ..model.lifecycle import State
from ..model.safe_text import error_summary
from ..model.settings import WorkerSettings
from .failure_log import log_failure
from .idle_stop import stop_when_idle
from .leak_check import LeakCheck
from .protocols import JobSource, LeaseHolder, OutcomeSink
from .registration import registration_row
from .runner import JobRunner
from .shared import WorkerShared
from .shutdown import drain

if TYPE_CHECKING:
    from ..client.client import Outlast

log = logging.getLogger("outlast.worker")


class Worker:
    """`run()` it, `await arun()` it, or use it as an async context manager beside a web app."""

    def __init__(
        self,
        app: Outlast,
        shared: WorkerShared,
        source: JobSource,
        sink: OutcomeSink,
        leases: LeaseHolder,
        executor: JobRunner,
    ) -> None:
        self.app = app
        self._services = shared.services
        self.shared = shared
        self._state = shared.state
        self.source = source
        self.sink = sink
        self.leases = leases
        self.executor = executor
        self.in_flight = shared.in_flight
        self.metrics = shared.metrics
        self._wakeup = shared.wakeup
        self._outage = shared.outage
        self._leak_check = LeakCheck(shared.in_flight, executor, sink, shared.metrics.counts)
        self._backoff = Backoff()
        self._broken = False  # it stopped itself after an internal failure
        self._background: asyncio.Task[None] | None = None
        self._started_at = 0.0
        self._has_run = False

    @property
    def id(self) -> str:
        return self._state.id

    @property
    def queues(self) -> list[str] | None:
        return self._state.queues

    @property
    def settings(self) -> WorkerSettings:
        return self._state.settings

    @property
    def state(self) -> str:
        """The state as the table of workers shows it."""
        return self._state.label

    @property
    def stopping(self) -> bool:
        return self._state.stopping

    @property
    def counts(self) -> Counter[str]:
        return self.metrics.counts

    def call_soon(self, action: Callable[[], object]) -> None:
        """From any thread: call a function in the worker's event loop."""
        self._wakeup.call_soon(action)

    def registration_row(self) -> dict[str, Any]:
        """Its row in the table of workers."""
        return registration_row(self._state, self.app.registry.names(), self.settings.concurrency)

    # Start and stop

    def run(self, *, until_idle: bool = False) -> None:
        """Run until stopped: SIGTERM and SIGINT drain, a second signal skips the grace time. With
        `until_idle`, also stop when no job of its queues is due or running."""
        from .signals import run_with_signals

        if until_idle:
            stop_when_idle(self)
        self._state.owns_process = True
        run_with_signals(self)

    async def arun(self, *, until_idle: bool = False) -> None:
        """Run until `stop()` is called, or with `until_idle` until no job is left; then drain."""
        self._check_new()
        if until_idle:
            stop_when_idle(self)
        self._wakeup.open()
        self.beat()
        self._started_at = time.monotonic()
        try:
            await self._work()
        finally:
            await self.source.aclose()
            self._log_stop()
        if (failure := self.source.failure) is not None:
            raise failure

    async def _work(self) -> None:
        await self.source.open()
        self._has_run = True
        self.leases.start(self)
        try:
            await self.source.ready()
            for service in self._services:
                await service.start()
            while not self._state.stopping:
                await self.step()
            await self._drain()
            if self._broken:
                raise OutlastError("the worker has stopped itself, and must be started again")
        except asyncio.CancelledError:
            self.stop()
            self._state.stop_now = True
            await self._drain()
            raise
        finally:
            await self._close_services()
            await self._deregister()

    def _log_stop(self) -> None:
        """Log one line about the whole run."""
        counts, ran = self.metrics.counts, time.monotonic() - self._started_at
        log.info(
            "worker %s stopped after %s: %d succeeded, %d dead, %d cancelled, %d to be retried",
            self.id, format_duration(ran), counts[State.SUCCEEDED], counts[State.DEAD],
            counts[State.CANCELLED], counts[State.SCHEDULED],
        )  # fmt: skip

    async def _close_services(self) -> None:
        for service in self._services:
            try:
                await service.aclose()
            except Exception as error:
                log.warning("%r did not close: %s", service, error_summary(error))

    async def _deregister(self) -> None:
        """Deregister before the liveness lock is released: with a slow database, other workers
        would otherwise consider this one dead."""
        self.leases.quiesce()  # first, and without waiting: a second cancel may follow
        try:
            await asyncio.to_thread(self.leases.quiesce_now)  # a renewal would register again
            await self.source.leave()
        finally:
            self.leases.stop()
            self.shared.threads.shutdown(wait=False)
            await asyncio.to_thread(self.leases.join)

    def stop(self) -> None:
        """Stop claiming, let running jobs end within the grace time, release the others. A second
        call skips the grace time. Safe from any thread and from signal handlers."""
        self._state.stop()
        self._wakeup.call_soon(self._wakeup.end_wait)
        self._wakeup.call_soon(self._wakeup.set)

    def _check_new(self) -> None:
        if self._has_run:
            raise RuntimeError("a worker runs only once: create another one with ol.worker(…)")

    async def __aenter__(self) -> Self:
        self._check_new()
        self._background = asyncio.create_task(self.arun(), name="outlast-worker")
        self._background.add_done_callback(_report)
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self._state.stopping:  # a second stop would skip the grace time
            self.stop()
        if self._background is not None:
            await self._background

    # The loop

    async def step(self) -> None:
        """Run one cycle; log its errors and back off."""
        try:
            if self._leak_check.due():
                self._leak_check.check()
            await self.source.cycle()
            self._backoff.succeeded()
        except Exception as error:
            wait = self._backoff.failed()
            known = self._outage.logs(error, wait)
            level = logging.DEBUG if known else logging.WARNING
            log_failure(self.metrics, f"next try in {wait:.1f} s", error, level)
            await self._wakeup.wait_out_failure(wait, self._state.stopping)
        if not self.leases.alive and not self._state.stop_now:
            log.critical("the heartbeat thread died: stopping, because no lease can be renewed")
            self.stop()
            self._broken = self._state.stop_now = True  # without renewals there is no time to drain

    async def _drain(self) -> None:
        """Let running jobs end within the grace time; release the others, unspent."""
        await self.source.stop()
        stopping = [asyncio.ensure_future(service.stop()) for service in self._services]
        within = self.app.store.settings.connect_timeout
        await drain(self.shared, self.executor, self.sink, self.step, within)
        if stopping:
            await asyncio.wait(stopping, timeout=within)

    # From the heartbeat thread, in the worker's loop

    def on_notify(self, queue: str) -> None:
        """Jobs may be ready in this queue, or ("") in any queue. A name that starts with ! means
        that jobs were cancelled."""
        self.metrics.counts["woken"] += 1
        self.source.notify(queue)
        if queue.startswith("!"):
            self.leases.renew_now()
        else:
            self._wakeup.set()

    def on_answer(self) -> None:
        """The database responds again: end the waits after failures."""
        self._wakeup.end_wait()
        self.leases.retry_failed()

    def on_draining(self, draining: bool) -> None:
        """Pause or resume claiming, on request; running jobs and maintenance continue."""
        self._state.drain(draining)
        log.warning("claiming %s on request", "paused" if draining else "resumed")
        self._wakeup.set()

    def on_unsafe(self) -> None:
        """Drop jobs before others may reclaim them."""
        unsafe = self.in_flight.unsafe()
        self.executor.drop_lost(unsafe)
        self.source.drop_claims([held.claim for held in unsafe])

    def beat(self) -> None:
        self._state.beat_at = time.monotonic()
        self.metrics.count_durations()


def _report(background: asyncio.Task[None]) -> None:
    """Log the failure of a worker beside a web app, where no caller awaits it."""
    if not background.cancelled() and (error := background.exception()):
        log.critical("the worker ended: %s", error, exc_info=error)
