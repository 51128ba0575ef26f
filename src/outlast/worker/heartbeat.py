"""The heartbeat thread: it renews leases, enforces timeouts and does maintenance while the event
loop is busy.

It has an event loop and connections of its own, so a handler that blocks the worker's loop loses
no lease, and a busy worker still reclaims what others left behind.
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

STALL_WARNING_S = 10.0  # seconds without a turn of the worker's loop that are worth a word
PROCESS_PAUSE_S = 5.0  # seconds between two pulses that mean a pause of us all
RETRY_SHARE = 0.1  # of the time for which claims are still safe, until the next try of a renewal
MIN_FENCE_INTERVAL_S = 0.01  # seconds between looks at our own leases


class LeaseRenewals(Protocol):
    """How this worker's claims are renewed; called in the heartbeat thread, but for `wake`."""

    def open(self, listener: HeartbeatListener, watch: Loop) -> None: ...

    async def renew(self) -> float | None: ...

    async def listen(self) -> float:
        """Hold the liveness lock, and hear of news."""

    def stop_listening(self) -> None: ...

    def restart_idle_watch(self) -> None:
        """Through a pooler: listen anew, as no connection of the watch breaks."""

    async def finish(self, transition: Transition) -> None: ...

    def loops(self) -> Sequence[Loop]:
        """What else there is to do, beside renewals."""

    def notify(self, queues: set[str]) -> Loop | None:
        """From any thread. The loop that should run soon, if there is one."""

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
        self._deadline = deadline  # seconds that the end of the thread is waited for
        self.loops: list[Loop] = []
        self._listener: Loop | None = None  # until the thread's own event loop runs
        self.watchdog_at = time.monotonic()
        self._is_stalled = False  # the worker's loop, and it was logged
        self._started = threading.Event()
        self._quiesced = threading.Event()  # nothing is renewed or healed any more
        self._ended = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._main, name="outlast-keeper", daemon=True)

    def start(self, listener: HeartbeatListener) -> None:
        self._warned = listener
        self.watchdog_at = time.monotonic()  # the database may have been waited for until now
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
            self._wakeup.call_soon(self._warned.on_notify, "")  # so that it sees that we ended

    async def _run_all(self) -> None:
        self._loop = asyncio.get_running_loop()
        # The one part of a worker that does not grow calmer: all others go on when it gets through.
        watch = Loop("watch", self.leases.listen, 0.0, ReconnectBackoff(), stable_after=1.0)
        self._listener = watch
        self.leases.open(self._warned, watch)
        self.loops = self._all_loops(watch)
        for loop in self.loops:
            loop.on_failure = self._on_failure
            if loop.name in ("renew", "reclaim"):  # which talk to the database in each pass
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
        """Through a pooler the watch notices nothing by itself: it starts again, and finds out when
        the database is back."""
        if isinstance(error, StoreUnavailable):
            self.leases.restart_idle_watch()
        return self._outage.logs(error, wait)

    def _all_loops(self, watch: Loop) -> list[Loop]:
        """The first one renews."""
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
        """A worker that cannot renew drops its jobs before others may reclaim them."""
        if self._in_flight.unsafe():
            self._wakeup.call_soon(self._warned.on_unsafe)
        wait = self._in_flight.safe_until() - time.monotonic()
        return max(MIN_FENCE_INTERVAL_S, min(wait, self._state.settings.reclaim_every))

    async def drop_overdue(self) -> None:
        """A handler that blocks the event loop prevents its own timeout there: it loses its job all
        the same."""
        for job in self._in_flight.overdue():
            ended = AttemptEnd(Outcome.TIMED_OUT, error=timeout_error(job.claim))
            await self.leases.finish(self._runner.decide(job.claim, ended))
            job.overdue_at = math.inf
            self._runner.counts["overdue"] += 1
            log.error("job %s: its handler blocks the event loop past its timeout; given up",
                      job.claim.id, extra=log_fields(job.claim))  # fmt: skip

    async def watchdog(self) -> None:
        """A blocked loop makes no progress while its leases are renewed: log it, and after a while
        exit, so that its jobs run elsewhere."""
        state, now = self._state, time.monotonic()
        limit = state.settings.stall_limit
        if now - self.watchdog_at > PROCESS_PAUSE_S:
            state.beat_at = now  # the whole process stood still, and not its loop
        self.watchdog_at = now
        self._wakeup.call_soon(self._warned.beat)
        stalled_for = now - state.beat_at
        if stalled_for < STALL_WARNING_S:
            self._is_stalled = False
        elif not self._is_stalled:
            self._is_stalled = True
            log.error("the event loop stands still for %.0f s: a handler blocks it", stalled_for)
        if state.owns_process and 0 < limit < stalled_for:
            log.critical("the event loop stood still for %.0f s: this process ends", stalled_for)
            tear_down()
            os._exit(1)


class LeaseBackoff(Backoff):
    """Normal back-off while no job is in flight; otherwise retry soon, because a lease is at
    stake."""

    def __init__(self, state: WorkerState, in_flight: InFlightJobs) -> None:
        super().__init__(first=min(1.0, state.settings.renew_every))
        self._state = state
        self._in_flight = in_flight

    def failed(self) -> float:
        wait = super().failed()
        if not self._in_flight:
            return wait
        left = self._in_flight.safe_until() - time.monotonic()
        return min(wait, max(self._state.settings.renew_every / 2, left * RETRY_SHARE))
