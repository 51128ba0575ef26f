"""Leases in the database: renew claims and registration, hold the liveness lock, release claims
that never arrived."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from ..loops import Loop
from ..model.claim import Claim
from ..model.errors import DeadlineExceeded, OutlastError, StoreBusy
from ..model.lease_trust import RENEWAL_SHARE
from ..model.lifecycle import Outcome
from ..model.outcome import Transition, unreceived
from ..ops import workers as worker_ops
from ..ops.enqueue import notify_queues
from ..ops.finish import finish
from ..ops.operation import Op
from ..ops.renew import renew
from ..store import Store
from .in_flight import LEASE_SAFETY, InFlightJobs, log_fields
from .maintenance import Maintenance
from .registration import Registration
from .row_errors import is_row_error, is_unexpected
from .runner import JobRunner
from .shared import WorkerShared

if TYPE_CHECKING:
    from .protocols import HeartbeatListener

T = TypeVar("T")
P = ParamSpec("P")

log = logging.getLogger("outlast.worker")

LOCK_WAIT_SHARE = 0.06  # of a lease, for which a renewal waits for a lock before it fails
RETRY_SHARE = 0.05  # of a lease, until the next try after a lock of another client
MIN_LOCK_WAIT_S = 0.1
LOST_CLAIM_CHECK_S = 0.25  # at most, until claims of a lost response are looked for again
MIN_CALL_TIMEOUT_S = 2.0  # less would time out on a busy machine


def lock_wait(lease: float) -> float:
    """Seconds that a renewal waits for another client's lock."""
    return max(MIN_LOCK_WAIT_S, lease * LOCK_WAIT_SHARE)


def max_renewal_s(lease: float) -> float:
    """Seconds that a renewal may take, so that there is time for another one."""
    return max(MIN_CALL_TIMEOUT_S, lease / 3)


class LockedOut:
    """Extends leases while another client's lock prevents renewals. The lock prevents reclaims as
    well, and after its release every detector of expired leases gives owners time to renew once: a
    lease that was safe under the lock stays safe for that time."""

    def __init__(self, in_flight: InFlightJobs) -> None:
        self._in_flight = in_flight
        self._locked = False

    def locked(self, fences: Mapping[str, int], at: float, lease: float) -> float:
        """A renewal met a lock at that time; returns the seconds until the next try."""
        self._in_flight.extend_while_locked(fences, at + lease * RENEWAL_SHARE * LEASE_SAFETY)
        if not self._locked:
            self._locked = True
            log.warning("a lock of another client keeps this worker from renewing its leases")
        return lease * RETRY_SHARE

    def passed(self) -> None:
        self._locked = False


class DatabaseLeases:
    def __init__(
        self,
        registration: Registration,
        shared: WorkerShared,
        runner: JobRunner,
        disown: Callable[[Claim], bool],
        make_maintenance: Callable[[Store, HeartbeatListener], Maintenance],
    ) -> None:
        self._parent = registration.store
        self._make_maintenance = make_maintenance
        self._state = shared.state
        self._registration = registration
        self._in_flight = shared.in_flight
        self._responses = shared.claim_responses
        self._runner = runner
        self._metrics = shared.metrics
        self._wakeup = shared.wakeup
        self._disown = disown  # returns False if this claim has arrived
        self._listening: asyncio.Future[None] | None = None
        self._notify = Loop("wake", self._notify_others, 60.0)
        self._to_notify: set[str] = set()
        self._lock = LockedOut(shared.in_flight)
        # Owned by this worker in the database, but unknown to it; with the number of claim requests
        # that had begun when each was first seen.
        self._unknown_claims: dict[tuple[str, int], int] = {}
        self._lost_responses = 0  # those whose claims were looked for
        self._timed_out_calls = 0  # calls in a row that timed out

    def open(self, listener: HeartbeatListener, watch: Loop) -> None:
        """Open one connection for the worker's own leases and one for maintenance: a slow sweep
        delays no renewal, and a large fleet does not exhaust the database's connections."""
        self._listener, self._watch = listener, watch
        wait = lock_wait(self._state.settings.lease)
        self.store = self._parent.clone(connections=1, lock_timeout=wait)
        self.maintenance = self._make_maintenance(self._parent.clone(connections=1), listener)

    def loops(self) -> Sequence[Loop]:
        return [*self.maintenance.loops(), self._notify]

    async def aclose(self) -> None:
        await self.store.aclose()
        await self.maintenance.store.aclose()

    # Notifications and the liveness lock

    async def listen(self) -> float:
        """Listen for notifications and hold the liveness lock, in this thread, whose loop no
        handler blocks. The first message shows that the connection works, and ends the back-off of
        other loops."""
        listener, post, first = self._listener, self._wakeup.call_soon, True

        def on_notification(queue: str) -> None:
            nonlocal first
            if first:
                post(self._registration.proven.set)
                post(listener.on_answer)
                first = False
            post(listener.on_notify, queue)

        every = self._state.settings.watch_every
        self._listening = asyncio.ensure_future(
            self.store.listen_for_jobs(self._state.id, on_notification, every)
        )
        try:
            await self._listening
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
        except OutlastError as error:
            if not isinstance(error, StoreBusy):
                post(self._registration.watch_failed)
                self.maintenance.detector.distrust_locks()  # other workers may have lost theirs too
            raise
        finally:
            self._listening.cancel()
        return 0.0

    def stop_listening(self) -> None:
        if self._listening is not None:
            self._listening.cancel()

    def restart_idle_watch(self) -> None:
        if self.store.pooled:
            self.stop_listening()

    def notify(self, queues: set[str]) -> Loop | None:
        if not self._parent.can_notify:
            return None
        self._to_notify |= queues
        return self._notify

    async def _notify_others(self) -> None:
        """Notifications only save time, so failures are ignored."""
        queues, self._to_notify = self._to_notify, set()
        if queues:
            with suppress(OutlastError):
                await self.store.arun(notify_queues, self.store.channel, queues)

    # Renewals

    async def renew(self) -> float | None:
        """Renew all claims in flight; learn which are lost, cancelled, or not held here. A claim
        whose row another client has locked is renewed again soon."""
        fences = self._in_flight.fences()
        try:
            next_in = await self._renew_all(fences)
        except StoreBusy as error:
            if not error.locked:
                raise
            lease = self._state.settings.lease
            return self._lock.locked(fences, time.monotonic(), lease)
        self._lock.passed()
        return next_in

    async def _renew_all(self, fences: dict[str, int]) -> float | None:
        asked_at = time.monotonic()
        id, settings = self._state.id, self._state.settings
        received_until, lost = self._responses.received_until(), self._responses.lost
        renewed = await self._with_deadline(renew, id, fences, settings.lease)
        self._in_flight.renewed(renewed.kept, fences, asked_at + settings.lease * LEASE_SAFETY)
        if renewed.draining != self._state.draining:
            self._wakeup.call_soon(self._listener.on_draining, renewed.draining)
        if renewed.lost or renewed.cancelling:
            self._wakeup.call_soon(self._runner.renewed, renewed, fences)
        if self._listening is None or self._listening.done():
            self._watch.trigger()  # the database responds: listen again
        await self._release_unknown(renewed.unknown_claims, received_until)
        known, proven = await self._with_deadline(
            worker_ops.heartbeat, id, len(fences), self._state.label
        )
        if not known:
            try:
                await self._with_deadline(worker_ops.register, self._registration.row())
            finally:  # also if the response was lost
                self.stop_listening()  # considered dead: listening again proves liveness
        elif not proven and self.store.holds_liveness_lock:
            # The lock is held, but the row does not say so.
            await self._with_deadline(worker_ops.prove_liveness, id)
        check_soon = self._unknown_claims and lost != self._lost_responses
        self._lost_responses = lost
        if check_soon:
            return min(LOST_CLAIM_CHECK_S, settings.renew_every / 4)
        return settings.renew_every / 4 if renewed.busy else None

    async def _with_deadline(
        self, operation: Callable[P, Op[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run an operation with a deadline that leaves time to renew on another connection. The
        deadline doubles after each timeout: retries would slow down a slow database further."""
        most = max_renewal_s(self._state.settings.lease) * 2 ** min(self._timed_out_calls, 10)
        try:
            async with asyncio.timeout(most):
                answer = await self.store.arun(operation, *args, **kwargs)
            self._timed_out_calls = 0
            return answer
        except TimeoutError as error:
            self._timed_out_calls += 1
            if isinstance(error, OutlastError):
                raise
            raise DeadlineExceeded(seconds=round(most, 3)) from error

    async def _release_unknown(self, unknown: list[Claim], received_until: int) -> None:
        """Release, unspent, claims whose response was lost: owned by this worker in the database,
        but unknown to it. A claim that was seen before is no longer in transit if all requests that
        had begun then were received before this renewal was sent."""
        known, self._unknown_claims = self._unknown_claims, {}
        for claim in unknown:
            begun = known.get((claim.id, claim.fence))
            if begun is None or received_until < begun or not self._disown(claim):
                first_seen = self._responses.begun if begun is None else begun
                self._unknown_claims[claim.id, claim.fence] = first_seen
                continue
            log.warning("job %s: releasing a claim that never reached this worker", claim.id,
                        extra=log_fields(claim))  # fmt: skip
            try:
                ended = unreceived(claim)
                await self._with_deadline(finish, [ended])
                self._metrics.counts[
                    "released" if ended.outcome is Outcome.RELEASED else "dead"
                ] += 1
                self._metrics.add_forgotten()
            except Exception as error:
                if not is_row_error(error) and not is_unexpected(error):
                    raise
                log.error("job %s cannot be released: %s", claim.id, error, extra=log_fields(claim))

    async def finish(self, transition: Transition) -> None:
        finished = await self._with_deadline(finish, [transition])
        for accepted, state in finished.accepted:
            self._metrics.add_outcome(accepted, state)
