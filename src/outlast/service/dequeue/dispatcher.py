"""Dispatcher: claims jobs for the server, offers them, and releases offers that were not accepted.

It is registered as a worker, with a liveness lock and a heartbeat thread, so the offers of a killed
server are ready again in about a second. If all workers are remote, it does their maintenance.

    streams ──▶ offer ──▶ offered ─┬─ accepted, by a renewal: owned by the worker from then on
                                   ├─ withdrawn: its stream was closed before it was sent
                                   └─ lapsed: its short lease expired
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter, deque
from collections.abc import Collection, Coroutine, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, NoReturn, TypeVar

from ...loops import Backoff
from ...model.breaker import Breaker, Circuit, OpenBreaker
from ...model.claim import Claim, ClaimKey
from ...model.errors import OutlastError
from ...model.outcome import counter_at_limit
from ...model.settings import WorkerSettings
from ...model.worker_names import new_server_id
from ...ops import offer as ops
from ...ops.breakers import take_probe
from ...ops.claim import PendingQueues
from ...ops.finish import finish
from ...ops.lanes import TurnClaims
from ...ops.reclaim import Refusal
from ...worker.breaker import Breakers
from ...worker.claim_requests import PROMOTE_INTERVAL_S
from ...worker.finished_jobs import MAX_REFUSED, FinishedJobs
from ...worker.local import SourceCallbacks, database_sink, heartbeat
from ...worker.maintenance import Outcomes
from ...worker.outage_log import OutageLog
from ...worker.outcome_policy import OutcomePolicy
from ...worker.pending_queues import read_pending
from ...worker.poller import Poller
from ...worker.registration import Registration
from ...worker.runner import JobRunner
from ...worker.schedules import KnownSchedules
from ...worker.shared import WorkerShared
from ...worker.state import WorkerState
from ...worker.threads import Threads
from ...worker.wakeup import Wakeup
from ...worker.worker import Worker
from ...worker.worker_metrics import WorkerMetrics
from . import task_tokens
from .offer_book import OfferBook
from .polling_workers import PollingWorkers
from .renewals import Renewals
from .shared_poll import SharedPoll

if TYPE_CHECKING:
    from ...client.client import Outlast
    from ...model.settings import ServiceSettings
    from ...store import Store
    from .stream import WorkerStream

log = logging.getLogger("outlast.service")

T = TypeVar("T")


class Dispatcher:
    """A background part of the service, and the source of its own worker, which runs no jobs."""

    def __init__(self, app: Outlast, settings: ServiceSettings, prompt: Store) -> None:
        self.app = app
        self.store, self.steady = app.store, app.store.hot_path_clone()
        self.service_settings = settings
        self._prompt = prompt
        self.renewals = Renewals(prompt, settings.remote_lease)
        self.settings = WorkerSettings.of({}, lease=settings.remote_lease)
        self.metrics, self.wakeup, self.outage = WorkerMetrics(), Wakeup(), OutageLog()
        self.decide = OutcomePolicy(app.registry).decide
        self.breakers = Breakers(lambda: self.id)
        self.breakers.on_open = lambda _: self.wakeup.set()
        self.breakers.on_close = self._breaker_closed
        self.refused: deque[Refusal] = deque(maxlen=MAX_REFUSED)  # not recorded yet
        self.book = OfferBook()
        self.streams: set[WorkerStream] = set()
        self.polling = PollingWorkers(self.store, self.settings.renew_every, self.spawn)
        self.is_open = asyncio.Event()  # registered, and the liveness lock is held
        self._tasks: set[asyncio.Task[object]] = set()  # tasks that outlive their requests
        self.shared_poll = SharedPoll(self._poll, self.spawn)
        self._promote_at = 0.0
        self._poller = Poller([], self.settings)  # only for the times of polls
        self._worker = self._new_worker()

    @property
    def id(self) -> str:
        return self._worker.id

    @property
    def counts(self) -> Counter[str]:
        return self.metrics.counts

    async def run(self) -> None:
        """Run as long as the service."""
        self._worker = self._new_worker()  # a restarted worker has a new id
        self.renewals = Renewals(self._prompt, self.service_settings.remote_lease)
        try:
            await self._worker.arun()
        finally:
            self.is_open.clear()

    def _new_worker(self) -> Worker:
        state = WorkerState(new_server_id(), self.settings, queues=[])
        shared = WorkerShared(
            state, Threads(1), metrics=self.metrics, wakeup=self.wakeup, outage=self.outage
        )
        self._claim_responses = shared.claim_responses
        self._registration = Registration(
            self.steady, shared, list, 0, self.app._adeclare_queues,
            owned=self.steady is not self.store,
        )  # fmt: skip
        runner = JobRunner(
            self.app.registry, shared, self.breakers, context=_no_job, deliver=_no_job,
            slot_freed=self.wakeup.set,
        )  # fmt: skip
        finished = FinishedJobs(
            shared.in_flight, self.metrics, self.became_ready, self.refused, self.slot_freed
        )
        sink = database_sink(self.steady, self.store, shared, finished, runner)
        self._leases = heartbeat(
            self.app, self._registration, shared, runner,
            Outcomes(self.decide, self.refused, lambda: None),
            SourceCallbacks(
                self.became_ready, self.book.disown, KnownSchedules(self._remote_tasks, dict)
            ),
        )  # fmt: skip
        return Worker(self.app, shared, self, sink, self._leases, runner)

    def _remote_tasks(self) -> list[str]:
        """The tasks of connected remote workers, whose schedules this server fires."""
        streamed = {task for stream in tuple(self.streams) for task in stream.info.tasks}
        return sorted(streamed | self.polling.tasks())

    # Job source of its worker

    @property
    def failure(self) -> OutlastError | None:
        return None

    async def open(self) -> None:
        await self._registration.register()

    async def ready(self) -> None:
        """Offer only with a liveness lock: otherwise the jobs of a killed server wait for their
        offer lease."""
        await self._registration.wait_for_liveness(lambda: self._leases.alive)
        self.is_open.set()

    async def cycle(self) -> None:
        if self.breakers.pending and await self.breakers.write(self.steady):
            self._leases.notify({""})
        if self._poller.wait() == 0:
            asked_at = time.monotonic()
            seen = await self._poller.poll(self.steady)
            self.breakers.update(seen.breakers, asked_at)
            await self.breakers.retire(self.steady)
        await self.wakeup.wait(self._poller.pause())

    async def stop(self) -> None:
        """Stop offering before renewals end, because later offers would not be renewed."""
        self.end_streams()
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await asyncio.gather(*self._tasks, return_exceptions=True)

    async def leave(self) -> None:
        self.end_streams()  # also those opened meanwhile
        await self._registration.deregister()

    async def aclose(self) -> None:
        await self._registration.aclose()

    def end_streams(self) -> None:
        for stream in (*self.streams, *self.polling.answered()):
            stream.end("the server is shutting down")

    def notify(self, queue: str) -> None:
        if not queue.startswith("!"):
            self._poller.notify(queue)
        self.shared_poll.outdate()
        for stream in self.streams:
            stream.notify(queue)

    def drop_claims(self, claims: Sequence[Claim]) -> None:
        """No effect: this worker runs no jobs."""

    def became_ready(self, queues: set[str]) -> None:
        for queue in queues:
            for stream in self.streams:
                stream.notify(queue)
        self._leases.notify(queues)

    def slot_freed(self, claim: Claim) -> None:
        for stream in self.streams:
            stream.slot_freed(claim)

    async def poll_together(self, _: Store, queues: Collection[str] | None) -> PendingQueues:
        """The shared poll for the queues of all streams, in the form that pollers call."""
        return await self.shared_poll.latest()

    async def _poll(self) -> PendingQueues:
        asked_at = time.monotonic()
        pending = await read_pending(self.store)
        self.breakers.update(pending.breakers, asked_at)
        await self.breakers.retire(self.steady)
        return pending

    # Circuit breakers

    def _breaker_closed(self, circuit: Circuit) -> None:
        self.wakeup.set()
        for stream in self.streams:
            stream.reopen(circuit.queue)

    async def probe(self, stream: WorkerStream) -> list[Claim]:
        """Offer one job of each of a stream's tasks whose breaker is due for a probe."""
        claims: list[Claim] = []
        for opened in self.breakers.due(stream.info.may_probe, stream.credit.free):
            claims += await asyncio.shield(self.spawn(self._take_probe(stream, opened)))
        return claims

    async def _take_probe(self, stream: WorkerStream, opened: OpenBreaker) -> list[Claim]:
        wait = Breaker().wait(opened.probes + 1, random.random())
        last_life = not stream.credit.has_a_last_life
        with self.claiming():
            claims = await self.steady.arun(
                take_probe, opened, self.id, self.service_settings.offer_lease, wait, last_life
            )
            if claims:
                self.breakers.probed(opened, claims[0])
            return self.assign(stream, claims)

    # Offer

    def claiming(self) -> AbstractContextManager[None]:
        """Around a claim in this server's name, until it is assigned: renewals leave it alone."""
        responses = self._claim_responses
        number = responses.begin(self.steady.breaks)
        return responses.receiving(number, self.steady, self._leases.renew_now)

    async def offer(self, stream: WorkerStream, request: ops.OfferRequest) -> list[Claim]:
        """Claim for a stream. If the caller is cancelled, the claim continues, and its jobs are
        released."""
        return await asyncio.shield(self.spawn(self._offer(stream, request)))

    async def _offer(self, stream: WorkerStream, request: ops.OfferRequest) -> list[Claim]:
        with self.claiming():
            claims = await self.steady.arun(ops.offer, request)
            ours = self.assign(stream, claims)
        return claims.holding(ours) if isinstance(claims, TurnClaims) else ours

    def assign(self, stream: WorkerStream, claims: Sequence[Claim]) -> list[Claim]:
        """Register claims for a stream; release them if it is closed."""
        if spent := [claim for claim in claims if claim.at_limit]:
            self.spawn(self._end_at_limit(spent))
        accepted = [claim for claim in claims if claim not in spent] if spent else claims
        offered = [claim for claim in accepted if self.book.claimed(claim)]
        self.counts["offered"] += len(offered)
        if stream.closed:
            self.withdraw(offered)
            return []
        ours = [claim._replace(worker=stream.worker, offered_by=self.id) for claim in offered]
        self.book.add(stream, ours, time.monotonic() + self.service_settings.offer_lease)
        return ours

    async def _end_at_limit(self, claims: Sequence[Claim]) -> None:
        """End jobs at a counter limit, one by one, so that a faulty row affects no other."""
        for claim in claims:
            await self.store.arun(finish, [self.decide(claim, counter_at_limit(claim))])

    def stream_of(self, claim: Claim) -> WorkerStream | None:
        return self.book.stream_of(claim.claim_key)

    def should_promote(self) -> bool:
        """Whether to promote due jobs, at intervals for all streams together."""
        due = time.monotonic() >= self._promote_at
        if due:
            self._promote_at = time.monotonic() + PROMOTE_INTERVAL_S
        return due

    def withdraw(self, claims: Sequence[Claim]) -> None:
        """Release offers that were not accepted, at once and independently of the request."""
        if claims:
            self.spawn(self._withdraw(claims))

    async def _withdraw(self, claims: Sequence[Claim]) -> None:
        try:
            self.became_ready(await self._release(claims))
        finally:
            self.forget([claim.claim_key for claim in claims])
        self.counts["withdrawn"] += len(claims)

    async def _release(self, claims: Sequence[Claim]) -> set[str]:
        backoff = Backoff(first=0.1, cap=1.0)
        until = time.monotonic() + self.service_settings.offer_lease
        while True:
            try:
                return await self.store.arun(ops.withdraw, self.id, claims)
            except OutlastError as error:
                if time.monotonic() > until:
                    log.warning("%d offers are left to their lease: %s", len(claims), error)
                    return set()
                await asyncio.sleep(backoff.failed())

    # Outcomes of offers

    def accepted(self, holds: Collection[ClaimKey]) -> None:
        for hold in holds:
            self.book.accept(hold)
        self.polling.renewed(holds)

    def forget(self, holds: Iterable[ClaimKey]) -> None:
        """Remove claims that the worker no longer holds."""
        for hold in holds:
            if (offer := self.book.remove(hold)) is not None:
                offer.stream.has_room()

    def sign(self, claim: Claim, key: bytes) -> str:
        """A token for a claim. Tokens signed here are recognized without parsing."""
        token = task_tokens.sign(claim, key)
        self.book.signed(claim, token)
        return token

    def claim_of(self, token: str, key: bytes) -> Claim | None:
        return self.book.claim_of(token) or task_tokens.read(token, key)

    def spawn(self, work: Coroutine[object, object, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            bug = not isinstance(error, OutlastError)  # logged here: the caller may be gone
            log.log(
                logging.ERROR if bug else logging.DEBUG, "a dispatcher task failed: %s", error,
                exc_info=error if bug else None,
            )  # fmt: skip


def _no_job(job: object) -> NoReturn:
    raise AssertionError(f"a server runs no job: {job}")
