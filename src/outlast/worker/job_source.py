"""The job source of a local worker: claims in the database, in one loop.

    ┌─▶ take ended jobs ─▶ finish + claim, one round trip ─▶ start claimed jobs ─────────┐
    └──────────── nothing to do: wait for an end, a wake-up or the next poll ◀───────────┘

During a round trip, outcomes gather; the busier the worker, the larger its batches. While handlers
are short and claims are full, the next round trip begins on another connection before the last one
has returned: database and Python work at the same time.

    connection 1   ├─ finish A, claim C ─┤         ├─ finish C, claim E ─┤
    connection 2              ├─ finish B, claim D ─┤
    handlers       ├─ B ─┤                ├─ C ─┤  ├─ D ─┤
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from ..model.claim import Claim
from ..model.errors import DeadlineExceeded, OutlastError, StoreUnavailable
from ..ops.claim import ClaimRequest
from .batches import OpenBatch
from .breaker import Breakers
from .capacity import Capacity
from .claim_requests import ClaimRequests
from .failure_log import log_failure
from .finisher import Finisher
from .in_flight import LEASE_SAFETY
from .pending_claims import PendingClaim, next_response
from .poller import Poller
from .prober import Prober
from .protocols import LeaseHolder
from .registration import Registration
from .runner import JobRunner
from .shared import WorkerShared

log = logging.getLogger("outlast.worker")

PREFETCH_FOR_S = 0.25  # seconds that a job may be in flight without a slot


class DatabaseSource:
    def __init__(
        self,
        registration: Registration,
        shared: WorkerShared,
        breakers: Breakers,
        runner: JobRunner,
        finisher: Finisher,
        leases: LeaseHolder,
    ) -> None:
        self._registration = registration
        self._store = registration.store
        self._state = shared.state
        self._in_flight = shared.in_flight
        self._responses = shared.claim_responses
        self._metrics = shared.metrics
        self._wakeup = shared.wakeup
        self._outage = shared.outage
        self._runner = runner
        self._finisher = finisher
        self._leases = leases
        self.poller = Poller(shared.state.queues, shared.state.settings)
        self.capacity = Capacity(shared, runner, finisher, beside=registration.owned)
        self._pending: list[PendingClaim] = []  # the oldest first
        self.breakers = breakers
        self._prober = Prober(self._store, shared, breakers, runner, self.poller)
        self._requests = ClaimRequests(
            shared, self.poller, self.capacity, breakers, runner, finisher
        )
        # Called before a wait while the worker is idle (see `idle`); returns whether to skip the
        # wait.
        self.on_idle: Callable[[], Awaitable[bool]] | None = None

    # Start and stop

    @property
    def failure(self) -> OutlastError | None:
        return None

    async def open(self) -> None:
        await self._registration.register()

    async def ready(self) -> None:
        await self._registration.wait_for_liveness(lambda: self._leases.alive)

    async def stop(self) -> None:
        """The next cycle claims nothing: see `WorkerState.claims`."""
        await self._settle()

    async def leave(self) -> None:
        await self._registration.deregister()

    async def aclose(self) -> None:
        await self._registration.aclose()

    def notify(self, queue: str) -> None:
        if not queue.startswith("!"):
            self.poller.notify(queue)
            self._runner.batches.notify(queue)

    def drop_claims(self, claims: Sequence[Claim]) -> None:
        """No effect: other workers reclaim the jobs, and the next renewal releases claims that the
        database still has for this worker."""

    def became_ready(self, queues: set[str]) -> None:
        """Outcomes of this worker made jobs ready in these queues: poll, and notify all workers."""
        for queue in queues:
            self.poller.notify(queue)
        self._wakeup.set()
        self._leases.notify(queues)

    # The cycle

    async def cycle(self) -> None:
        self._start()
        self._runner.release_unstarted(after=PREFETCH_FOR_S)
        if self._pending:
            await self._cycle_beside(self._pending[0])
            return
        if self.breakers.pending and await self.breakers.write(self._store):
            self._leases.notify({""})
        capacity = self._free_capacity()
        if self._runner.prefetched or 0 < capacity < self._state.settings.concurrency:
            # Handlers that have just begun may end at once: this cycle reports them, too.
            # Otherwise batches would stay half full for as long as there is work.
            await asyncio.sleep(0)
            if self._may_start():
                return
            capacity = self._free_capacity()
        if (batch := self._runner.batches.wants_more(full=capacity <= 0)) is not None:
            await self._fill_batch(batch)
            return
        if capacity > 0 and self.poller.wait() == 0:
            capacity = await self._poll_and_probe(capacity)
        self.poller.held = self.breakers.held
        queues = self.poller.next_queues() if capacity > 0 else ()
        if not queues:
            await self._flush_or_wait(capacity)
            return
        if not self.poller.is_plain(queues):
            capacity = self.capacity.claimable(self.poller.ceiling(queues))
            if capacity <= 0:
                self.poller.return_to_front(queues)
                await self._flush_or_wait(capacity)
                return
        await self._claim(self._requests.new(*queues, limit=capacity))

    async def _cycle_beside(self, first: PendingClaim) -> None:
        """A cycle with a pending claim: begin the next claim, then receive the first response."""
        await asyncio.sleep(0)  # handlers that have just begun may end at once
        if self._may_start():
            return
        try:
            if self._state.claims and self.poller.wait() == 0:
                await self._look()
            if (request := self._requests.beside(first.request)) is not None:
                self._pending.append(self._begin(request, beside=True))
            answered = await next_response(self._pending)
            await self._receive(answered.request, answered.number, answered.answer)
        except Exception:
            await self._settle()
            raise

    async def _settle(self) -> None:
        """Receive the responses of pending claims; an immediate stop cancels these, and
        deregistration releases the jobs that they may have claimed."""
        if self._state.stop_now:
            for claim in self._pending:
                claim.answer.cancel()
        while self._pending:
            first = await next_response(self._pending)
            if first.answer.cancelled():
                continue
            try:
                await self._receive(first.request, first.number, first.answer)
            except Exception as error:
                level = logging.DEBUG if self._outage.logs(error, 0.0) else logging.WARNING
                log_failure(self._metrics, "the pending claim is abandoned", error, level)

    def _begin(self, request: ClaimRequest, *, beside: bool) -> PendingClaim:
        finisher = self._finisher
        ask = finisher.report_and_claim if beside else finisher.flush_and_claim
        self.poller.claim_sent(request.queue)
        number = self._responses.begin(self._store.breaks)
        return PendingClaim(request, number, asyncio.ensure_future(ask(request)))

    def _free_capacity(self) -> int:
        return self.capacity.claimable() if self._state.claims else 0

    async def _poll_and_probe(self, capacity: int) -> int:
        """Poll, and probe due breakers; returns the remaining capacity."""
        await self._look()
        if not self.breakers.open:
            return capacity
        await self._probe(capacity)
        await self.breakers.retire(self._store)
        return self.capacity.claimable()

    async def _probe(self, capacity: int) -> None:
        for opened in self._prober.due(capacity):
            asked_at = time.monotonic()
            with self._received(self._responses.begin(self._store.breaks)):
                if claims := await self._prober.probe(opened):
                    self._accept(claims, asked_at)

    async def _look(self) -> None:
        asked_at = time.monotonic()
        pending = await self.poller.poll(self._store)
        self.breakers.update(pending.breakers, asked_at)

    async def _fill_batch(self, batch: OpenBatch) -> None:
        """Claim more items for an open batch."""
        try:
            held = batch.definition.name in self.breakers.held.get(batch.queue, ())
            if self._state.claims and not held and not self.capacity.short_of_memory():
                request = self._requests.new(batch.queue, limit=batch.capacity)
                await self._claim(replace(request, task=batch.definition.name, cursor=None))
        finally:
            self._runner.batches.note_filled(batch)

    async def _claim(self, request: ClaimRequest) -> None:
        """Report, claim, and start the claimed jobs, now or in the next cycle."""
        if self._finisher:
            self.poller.idle_signs.changed()
        if self._requests.allows_another(request):
            self._pending.append(self._begin(request, beside=False))
            return
        number = self._responses.begin(self._store.breaks)
        await self._receive(request, number, self._finisher.flush_and_claim(request))

    async def _receive(
        self, request: ClaimRequest, number: int, answer: Awaitable[tuple[list[Claim], float]]
    ) -> None:
        """Receive the response of a claim request, and start its jobs."""
        with self._received(number):
            await self._receive_claims(request, answer)

    def _received(self, number: int) -> AbstractContextManager[None]:
        return self._responses.receiving(number, self._store, self._leases.renew_now)

    async def _receive_claims(
        self, request: ClaimRequest, answer: Awaitable[tuple[list[Claim], float]]
    ) -> None:
        try:
            claims, asked_at = await answer
        except Exception as error:
            if isinstance(error, StoreUnavailable | DeadlineExceeded):
                self.poller.return_to_front(request.queues)
                raise
            self.poller.failed(request)
            others = f" and {len(request.other_queues)} others" if request.other_queues else ""
            log_failure(self._metrics, f"claiming from {request.queue!r}{others} failed", error)
            return
        self._outage.answered()
        took = time.monotonic() - asked_at
        self._accept(claims, asked_at)
        if request.task is None:
            self.poller.claimed(request, claims, took)
            if not claims and request.queue in self.breakers.held and not request.longest_due:
                self.poller.back_off_held(request.queues, took)
            all_there_was = len(claims) < request.limit and request.cursor is None
            all_there_was = all_there_was and not request.longest_due
            if request.turn is not None:  # each lane gives a share, and may have more
                all_there_was = not claims
            for queue in request.queues:
                self._runner.batches.note_claim(queue, all_there_was)

    def _accept(self, claims: Sequence[Claim], asked_at: float) -> None:
        self._metrics.counts["claimed"] += len(claims)
        self._metrics.add_claims(claims)
        self._metrics.count_durations()
        self.capacity.note_claims(claims)
        self._runner.accept(claims, asked_at + self._state.settings.lease * LEASE_SAFETY)
        self._start(claimed=True)

    def _may_start(self) -> bool:
        """Whether prefetched jobs have free slots: the next cycle starts them."""
        if not self._runner.prefetched or self._state.stopping or self._in_flight.secludes():
            return False
        return self.capacity.free_slots() > 0

    def _start(self, *, claimed: bool = False) -> None:
        """Start prefetched jobs that have a slot, and claimed ones that need none; none once the
        worker stops, which releases them."""
        if self._runner.prefetched and not self._state.stopping:
            free = self.capacity.free_slots()
            if claimed or free > 0 or self._runner.batches.slots:
                self._runner.start(free)

    async def _flush_or_wait(self, capacity: int) -> None:
        if self._finisher:
            self.poller.idle_signs.changed()
            await self._finisher.flush()
            return
        if self.on_idle is not None and self.idle and await self.on_idle():
            return
        wait = self.poller.pause() if capacity > 0 else 1.0
        wait = min(wait, self._finisher.due_in())
        if self._runner.prefetched:
            wait = min(wait, PREFETCH_FOR_S)
        await self._wakeup.wait(
            min(wait, self._state.settings.renew_every) if self._in_flight else wait
        )

    @property
    def idle(self) -> bool:
        """Whether nothing runs here, and a poll since the last job found nothing to claim."""
        busy = self._in_flight or self._runner.prefetched or self._finisher or self.breakers.pending
        return not busy and not self._pending and self.poller.idle_signs.exhausted
