"""The stream of one remote worker: jobs are offered as long as it can hold more.

The worker's jobs are counted by the reports through this server and, every few seconds, by the
database: the count stays correct when reports go through another server, or a claim is lost.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ...loops import Backoff
from ...model.claim import Claim, ClaimKey
from ...model.errors import DeadlineExceeded, OutlastError, StoreUnavailable
from ...ops import offer as ops
from ...ops import workers as worker_ops
from ...protocol import FrameFields, offer_frames
from ...worker.poller import Poller
from ..streaming import StreamFormat
from .credit import Credit
from .offer_book import Offer
from .offer_requests import OfferRequests
from .worker_info import RemoteWorkerInfo

if TYPE_CHECKING:
    from .dispatcher import Dispatcher

log = logging.getLogger("outlast.service")

RECONCILE_INTERVAL_S = 1.0  # seconds between reads of the worker's jobs in the database
GATHER_S = 0.005
MAX_POLL_OVERTIME_S = 1.0  # seconds that a poll may exceed its wait while queues are left

Send = Callable[[bytes], Awaitable[None]]


class WorkerStream:
    def __init__(
        self, dispatcher: Dispatcher, info: RemoteWorkerInfo, format: StreamFormat, key: bytes
    ) -> None:
        self.dispatcher = dispatcher
        self.info = info
        self.worker = info.worker
        self.closed = False
        self._format = format
        self._key = key
        self.poller = Poller(info.queues, dispatcher.settings, dispatcher.poll_together)
        self.offers: dict[ClaimKey, Offer] = {}  # kept by the dispatcher's book
        self.credit = Credit(info.credit, dispatcher.service_settings, self.offers)
        self._requests = OfferRequests(dispatcher, info, self.credit)
        self._piggybacked: list[Claim] = []  # claimed with a report, not sent yet
        self._wakeup = asyncio.Event()
        self._end_reason = ""
        self.renewal_due = False  # the worker should renew: the response lists jobs to stop
        self._is_answered = False  # a poll with its response: no more jobs are claimed for it
        self._backoff = Backoff()
        now = time.monotonic()
        self._ends_at = now + dispatcher.service_settings.stream_life * random.uniform(0.9, 1.0)
        self._reconcile_at = now + RECONCILE_INTERVAL_S
        self._heartbeat_at = now
        self._silent_since = now

    # From start to end

    async def run(self, send: Send) -> None:
        await self._register()
        await self._send_frame(send, self.info.hello(self.dispatcher.service_settings))
        while not self._end_reason:
            try:
                await self._cycle(send)
                self._backoff.succeeded()
            except OutlastError as error:
                wait = self._backoff.failed()
                log.warning("a pass of a stream failed (%s); next try in %.1f s", error, wait)
                await self._wait(wait)
        await self._send_frame(send, {"type": "bye", "reason": self._end_reason})

    def close(self) -> None:
        """Close the stream without waiting, and release unaccepted offers at once."""
        self.closed = True
        self.dispatcher.streams.discard(self)
        held = self.offers.values()
        self.dispatcher.withdraw([offer.claim for offer in held if offer.expires_at is not None])
        self.dispatcher.book.remove_stream(self)

    def end(self, reason: str) -> None:
        self._end_reason = self._end_reason or reason
        self._wakeup.set()

    async def _register(self) -> None:
        self.dispatcher.streams.add(self)
        store = self.dispatcher.store
        await store.arun(worker_ops.register, self._registration)
        before = await store.arun(ops.owned, self.worker)
        self.dispatcher.book.add(self, before, expires_at=None)
        if (previous := self.dispatcher.polling.previous(self.worker)) is not None:
            self.dispatcher.book.adopt(self, previous)
            previous.has_room()

    async def _cycle(self, send: Send) -> None:
        if self.renewal_due:
            self.renewal_due = False
            await self._send_frame(send, {"type": "renew"})
        now = time.monotonic()
        if now >= self._ends_at:
            self.end("this stream has reached its maximum lifetime: open another one")
            return
        if now >= self._reconcile_at:
            await self._reconcile()
        claims = await self._next_claims()
        if claims is not None:
            await self._send(send, claims)
        elif now - self._silent_since >= self.dispatcher.service_settings.keep_alive:
            await self._send_bytes(send, self._format.keep_alive)
        else:
            await self._wait()

    async def _next_claims(self) -> list[Claim] | None:
        if self.credit.is_nearly_used and not self._piggybacked:
            await self._gather()
        return self._take_piggybacked() or await self._offer()

    async def next_claims_for_poll(self, wait: float) -> list[Claim]:
        """One poll instead of a stream: the first jobs that can be offered, or none within so many
        seconds; earlier if a cancel was requested for a job of this worker."""
        self._requests.max_share = 1
        if (kept := self.dispatcher.polling.poller(self.info)) is not None:
            self.poller = kept  # continue the turns of queues, lanes and priorities
        self._ends_at = self._silent_since = until = time.monotonic() + wait
        await self._register()
        self.dispatcher.shared_poll.outdate()  # find jobs that are already enqueued
        claims: list[Claim] | None = []
        while not claims and not self._end_reason:
            claims = await self._poll_once()
            left = until - time.monotonic()
            if (self.renewal_due and self.offers) or left < -MAX_POLL_OVERTIME_S:
                break
            if claims is None:  # no queue has jobs; []: a claim was empty
                if left <= 0:
                    break
                await self._wait(left)
        self._is_answered = True
        return [*(claims or ()), *(self._take_piggybacked() or ())]

    async def _poll_once(self) -> list[Claim] | None:
        try:
            if time.monotonic() >= self._reconcile_at:
                await self._reconcile()
            claims = await self._next_claims()
            self._backoff.succeeded()
            return claims
        except OutlastError as error:
            wait = min(self._backoff.failed(), max(0.0, self._ends_at - time.monotonic()))
            log.warning("poll failed (%s); next try in %.1f s", error, wait)
            await asyncio.sleep(wait)
            return None

    @property
    def ending(self) -> bool:
        return bool(self._end_reason)

    async def change(self, most: float) -> None:
        """Wait until the worker accepts or reports, at most this many seconds."""
        self._wakeup.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(most):
                await self._wakeup.wait()

    def unaccepted(self) -> list[Offer]:
        return [offer for offer in self.offers.values() if offer.expires_at is not None]

    async def _wait(self, most: float = 60.0) -> None:
        now = time.monotonic()
        until = [
            self._ends_at,
            self._reconcile_at,
            self._silent_since + self.dispatcher.service_settings.keep_alive,
        ]
        if self.credit.free > 0:
            until.append(now + self.poller.pause())
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, min(most, *(at - now for at in until)))):
                await self._wakeup.wait()
        self._wakeup.clear()

    # Offer

    async def _gather(self) -> None:
        """Wait a moment: a busy worker finishes many jobs at once, which are replaced together."""
        until = time.monotonic() + GATHER_S
        while self.credit.is_nearly_used and not self._piggybacked:
            if (left := until - time.monotonic()) <= 0:
                break
            self._wakeup.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._wakeup.wait()
        self._wakeup.set()

    async def _offer(self) -> list[Claim] | None:
        """Claims from the next queue; None: no queue is known to have jobs."""
        if self.credit.free <= 0:
            return None
        if self.poller.wait() == 0:
            await self.poller.poll(self.dispatcher.store)
            if self.dispatcher.breakers.open and (probes := await self.dispatcher.probe(self)):
                return probes
        if (room := self.credit.free) <= 0:  # a prefetch has expired meanwhile
            return None
        self.poller.held = self._requests.held_tasks()
        if not (queues := self.poller.next_queues()):
            return None
        if (request := self._requests.new(self.poller, queues, room)) is None:
            return None
        asked_at = time.monotonic()
        try:
            claims = await self.dispatcher.offer(self, request)
        except OutlastError as error:
            if isinstance(error, StoreUnavailable | DeadlineExceeded):
                self.poller.return_to_front(request.queues)
            else:
                self.poller.failed(request)
            raise
        finally:
            self.credit.requested -= request.limit
        self.poller.claimed(request, claims)
        if not claims and request.queue in self.poller.held and not request.longest_due:
            self.poller.back_off_held(request.queues, time.monotonic() - asked_at)
        return claims

    def piggyback_request(self, ending: int) -> ops.OfferRequest | None:
        """The claim for the round trip that ends this number of the worker's jobs."""
        room = self.credit.free + ending
        self.poller.held = self._requests.held_tasks()
        if (
            self.closed
            or self._is_answered
            or self._end_reason
            or room <= 0
            or not (queues := self.poller.next_queues())
        ):
            return None
        return self._requests.new(self.poller, queues, room)

    def piggyback_claimed(self, request: ops.OfferRequest, claims: Sequence[Claim]) -> None:
        self.credit.requested -= request.limit
        self.poller.claimed(request, claims)
        ours = self.dispatcher.assign(self, claims)
        if self._is_answered:
            self.dispatcher.withdraw(ours)
            return
        self._piggybacked += ours
        self._wakeup.set()

    def piggyback_failed(self, request: ops.OfferRequest) -> None:
        """The claim failed: there may still be ready jobs."""
        self.credit.requested -= request.limit
        self.poller.return_to_front(request.queues)
        self._wakeup.set()

    def _take_piggybacked(self) -> list[Claim] | None:
        claims, self._piggybacked = self._piggybacked, []
        return claims or None

    async def _send(self, send: Send, claims: Sequence[Claim]) -> None:
        """Send offers. Unsent offers are not accepted, so `close` releases them."""
        for frame in offer_frames(claims, self.sign):
            await self._send_frame(send, frame)

    def sign(self, claim: Claim) -> str:
        return self.dispatcher.sign(claim, self._key)

    async def _send_frame(self, send: Send, frame: FrameFields) -> None:
        await self._send_bytes(send, self._format.write(frame))

    async def _send_bytes(self, send: Send, data: bytes) -> None:
        """Close the stream of a worker that reads nothing for the time of an offer."""
        async with asyncio.timeout(self.dispatcher.service_settings.offer_lease):
            await send(data)
        self._silent_since = time.monotonic()

    # Count

    def has_room(self) -> None:
        """Note that the worker no longer holds a job, or has accepted one."""
        self._wakeup.set()

    async def _reconcile(self) -> None:
        """Read from the database which jobs the worker holds, and whether it accepts offers."""
        self._reconcile_at = time.monotonic() + RECONCILE_INTERVAL_S
        await self._heartbeat()
        if not self.offers:
            return
        claims = [offer.claim for offer in self.offers.values()]
        found = await self.dispatcher.store.arun(ops.owners_of, claims)
        for hold, owner in found.items():
            if owner == self.worker:
                self.dispatcher.accepted([hold])
            elif owner is None:
                if (offer := self.offers.get(hold)) is not None and offer.lapsed:
                    self.dispatcher.counts["lapsed"] += 1
                    self.end("an offer was not accepted in time")
                self.dispatcher.forget([hold])

    async def _heartbeat(self) -> None:
        """Register the worker, as often as a local one sends heartbeats."""
        if time.monotonic() < self._heartbeat_at:
            return
        self._heartbeat_at = time.monotonic() + self.dispatcher.settings.renew_every
        store = self.dispatcher.store
        known, _ = await store.arun(
            worker_ops.heartbeat, self.worker, len(self.credit.held), "working"
        )
        if not known:
            await store.arun(worker_ops.register, self._registration)

    # Notifications

    def slot_freed(self, claim: Claim) -> None:
        """A job of a limited queue has ended: any worker may get the next one of its lane."""
        self.poller.slot_freed(claim)
        self._wakeup.set()

    def reopen(self, queue: str) -> None:
        self.poller.reopen(queue)
        self._wakeup.set()

    def notify(self, queue: str) -> None:
        if queue.startswith("!"):
            self.renewal_due = True
        else:
            self.poller.notify(queue)
        self._wakeup.set()

    @property
    def _registration(self) -> dict[str, object]:
        return self.info.registration(self.dispatcher.service_settings.remote_lease)
