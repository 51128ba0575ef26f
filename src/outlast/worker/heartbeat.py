"""The heartbeat thread: it renews leases, enforces timeouts and does maintenance while the event
loop is busy.

It has an event loop and connections of its own, so a handler that blocks the worker's loop loses
no lease, and a busy worker still reclaims the jobs of dead workers.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from ..loops import Backoff, Loop, ReconnectBackoff
from ..model.errors import StoreUnavailable
from ..model.lifecycle import Outcome
from ..model.outcome import AttemptEnd, Transition
from .executor import timeout_error
from .in_flight import InFlightJobs, log_fields
from .logs import tear_down
from .runner import JobRunner
from .shared import WorkerShared
from .state import WorkerState

if TYPE_CHECKING:
    from .protocols import HeartbeatListener

log = logging.getLogger("outlast.worker")

STALL_WARNING_S = 10.0  # seconds without a turn of the worker's loop until a warning
PROCESS_PAUSE_S = 5.0  # seconds between two pulses that show a pause of the whole process
RETRY_SHARE = 0.1  # of the time for which claims are still safe, until the next try of a renewal
MIN_FENCE_INTERVAL_S = 0.01  # seconds between checks of the worker's own leases


class LeaseRenewals(Protocol):
    """Renewals of this worker's claims; called in the heartbeat thread, except `notify`."""

    def open(self, listener: HeartbeatListener, watch: Loop) -> None: ...

    async def renew(self) -> float | None: ...

    async def listen(self) -> float:
        """Hold the liveness lock and listen for notifications."""

    def stop_listening(self) -> None: ...

    def restart_idle_watch(self) -> None:
        """Through a pooler, listen again: its connections do not break with the database's."""

    async def finish(self, transition: Transition) -> None: ...

    def loops(self) -> Sequence[Loop]:
        """Further loops to run beside the renewals."""

    def notify(self, queues: set[str]) -> Loop | None:
        """From any thread: notify other workers. Returns the loop to trigger, if any."""

    async def aclose(self) -> None: ...


class HeartbeatThread:
    def __init__(
        self,
        leases: LeaseRenewals,
        shared: WorkerShared,
        runner: JobRunner,
        *,
        deadline: float,
    ) -> None:
        self.leases = leases
        self._state = shared.state
        self._in_flight = shared.in_flight
        self._runner = runner
        self._wakeup = shared.wakeup
        self._outage = shared.outage
        self._deadline = deadline  # seconds to wait for the thread to end
        self.loops: list[Loop] = []
        self._listener: Loop | None = None  # until the thread's own event loop runs
        self.watchdog_at = time.monotonic()
        self._is_stalled = False  # the worker's loop is blocked, and this was logged
        self._started = threading.Event()
        self._quiesced = threading.Event()  # renewals and maintenance have ended
        self._ended = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._main, name="outlast-keeper", daemon=True)

    def start(self, listener: HeartbeatListener) -> None:
        self._callbacks = listener
        self.watchdog_at = time.monotonic()  # the start may have waited for the database
        self._thread.start()
        self._started.wait()

    @property
    def started(self) -> bool:
        return self._started.is_set()

    @property
    def alive(self) -> bool:
        return not self._ended

    def renew_now(self) -> None:
        self._call(self.loops[0].trigger)

    def retry_failed(self) -> None:
        for loop in self.loops:
            self._call(loop.retry_now)

    def notify(self, queues: set[str]) -> None:
        if (loop := self.leases.notify(queues)) is not None:
            self._call(loop.trigger)

    def quiesce(self) -> None:
        for loop in self.loops:
            if loop is not self._listener:
                self._call(loop.stop)

    def quiesce_now(self) -> None:
        self._quiesced.wait(self._deadline)

    def stop(self) -> None:
        self.quiesce()
        if self._listener is not None:
            self._call(self._listener.stop)
            self._call(self.leases.stop_listening)

    def join(self) -> None:
        if self._thread.ident is not None:  # it may not have started, for lack of memory
            self._thread.join(self._deadline)

    def _call(self, action: Callable[[], object]) -> None:
        if self._loop is not None and not self._loop.is_closed():
            try:
                self._loop.call_soon_threadsafe(action)
            except RuntimeError:
                log.debug("the heartbeat thread has ended already")

    def _main(self) -> None:
        try:
            asyncio.run(self._run_all())
        except Exception as error:
            log.critical("the heartbeat thread failed: %s", error, exc_info=True)
        finally:
            self._ended = True
            self._started.set()
            self._quiesced.set()
            self._wakeup.call_soon(self._callbacks.on_notify, "")  # the worker checks `alive`

    async def _run_all(self) -> None:
        self._loop = asyncio.get_running_loop()
        # Its back-off stays short: when it reconnects, it ends the back-offs of all other loops.
        watch = Loop("watch", self.leases.listen, 0.0, ReconnectBackoff(), stable_after=1.0)
        self._listener = watch
        self.leases.open(self._callbacks, watch)
        self.loops = self._all_loops(watch)
        for loop in self.loops:
            loop.on_failure = self._on_failure
            if loop.name in ("renew", "reclaim"):  # these use the database in each pass
                loop.on_success = self._outage.answered
        self._started.set()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(watch.arun(), name="outlast-watch")
                await self._run_loops()
                self._quiesced.set()
        finally:
            await self.leases.aclose()

    def _on_failure(self, error: Exception, wait: float) -> bool:
        """Restart the watch, which notices no outage behind a pooler: its reconnect shows when the
        database is back."""
        if isinstance(error, StoreUnavailable):
            self.leases.restart_idle_watch()
        return self._outage.logs(error, wait)

    def _all_loops(self, watch: Loop) -> list[Loop]:
        """All loops; the first one renews."""
        settings = self._state.settings
        urgent = LeaseBackoff(self._state, self._in_flight)

        return [
            Loop("renew", self.leases.renew, settings.renew_every, urgent),
            watch,
            Loop("fence", self.self_fence, settings.reclaim_every),
            Loop("overdue", self.drop_overdue, settings.reclaim_every),
            Loop("pulse", self.watchdog, 1.0),
            *self.leases.loops(),
        ]

    async def _run_loops(self) -> None:
        async with asyncio.TaskGroup() as group:
            for loop in self.loops:
                if loop is not self._listener:
                    group.create_task(loop.arun(), name=f"outlast-{loop.name}")

    async def self_fence(self) -> float:
        """Drop jobs that could not be renewed before other workers may reclaim them."""
        if self._in_flight.unsafe():
            self._wakeup.call_soon(self._callbacks.on_unsafe)
        wait = self._in_flight.safe_until() - time.monotonic()
        return max(MIN_FENCE_INTERVAL_S, min(wait, self._state.settings.reclaim_every))

    async def drop_overdue(self) -> None:
        """Time out jobs whose handlers block the event loop, which would enforce the timeout."""
        for job in self._in_flight.overdue():
            ended = AttemptEnd(Outcome.TIMED_OUT, error=timeout_error(job.claim))
            await self.leases.finish(self._runner.decide(job.claim, ended))
            job.overdue_at = math.inf
            self._runner.counts["overdue"] += 1
            log.error("job %s: its handler blocks the event loop past its timeout: timed out",
                      job.claim.id, extra=log_fields(job.claim))  # fmt: skip

    async def watchdog(self) -> None:
        """Log a blocked event loop, whose leases are still renewed; past the stall limit, exit, so
        that its jobs run elsewhere."""
        state, now = self._state, time.monotonic()
        limit = state.settings.stall_limit
        if now - self.watchdog_at > PROCESS_PAUSE_S:
            state.beat_at = now  # the whole process was paused, not only its loop
        self.watchdog_at = now
        self._wakeup.call_soon(self._callbacks.beat)
        stalled_for = now - state.beat_at
        if stalled_for < STALL_WARNING_S:
            self._is_stalled = False
        elif not self._is_stalled:
            self._is_stalled = True
            log.error("the event loop has been blocked by a handler for %.0f s", stalled_for)
        if state.owns_process and 0 < limit < stalled_for:
            log.critical("the event loop was blocked for %.0f s: exiting", stalled_for)
            tear_down()
            os._exit(1)


class LeaseBackoff(Backoff):
    """Back-off of renewals: bounded while jobs are in flight, whose leases would expire."""

    def __init__(self, state: WorkerState, in_flight: InFlightJobs) -> None:
        super().__init__(first=min(1.0, state.settings.renew_every))
        self._state = state
        self._in_flight = in_flight

    def failed(self) -> float:
        wait = super().failed()
        if not self._in_flight:
            return wait
        left = self._in_flight.safe_until() - time.monotonic()
        share = 0.0 if math.isinf(left) else left * RETRY_SHARE  # infinite: all jobs have ended
        return min(wait, max(self._state.settings.renew_every / 2, share))
