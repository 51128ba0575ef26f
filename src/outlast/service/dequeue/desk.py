"""The server as an owner of jobs: it claims what it offers, and takes back what nobody accepted.

A desk is a worker that runs nothing. It has a card, a liveness lock and a keeper like any other, so
what a killed server had offered is back in about a second; and where there are remote workers only,
it is the one that heals for them all.

    streams ──▶ offer ──▶ offered ─┬─ accepted, by a renewal: the worker's from now on
                                   ├─ withdrawn: its stream is gone, it was never sent
                                   └─ lapsed: its short lease ran out
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ...model.breaker import Breaker, Circuit, OpenBreaker
from ...model.errors import OutlastError
from ...model.job import Claim, Hold
from ...model.offer import new_desk_id
from ...model.outcome import counter_at_limit
from ...model.settings import WorkerSettings
from ...ops import offer as ops
from ...ops.breakers import take_probe
from ...ops.claim import Seen
from ...ops.finish import finish
from ...worker.held import Hands
from ...worker.lookout import see
from ...worker.loops import Backoff
from ...worker.worker import PROMOTE_EVERY, Worker
from . import tokens

if TYPE_CHECKING:
    from ...client import Outlast
    from ...model.settings import ServiceSettings
    from .stream import Stream

log = logging.getLogger("outlast.service")

FRESH = 0.05  # seconds for which one look at the queues serves all streams, if no news come


class Offered(Hands):
    """What the desk has offered, as far as its keeper is concerned: claims in its name that it does
    not know of never reached it, and are put back."""

    def __init__(self) -> None:
        super().__init__()
        self.offers: dict[Hold, Claim] = {}

    def offer(self, claim: Claim) -> bool:
        """False: the keeper has put it back already, because it was so long on its way to us."""
        self.offers[claim.hold] = claim
        if claim.hold not in self._given_up:
            return True
        del self.offers[claim.hold]
        return False

    def _has(self, claim: Claim) -> bool:
        return claim.hold in self.offers


class Desk(Worker):
    def __init__(self, app: Outlast, settings: ServiceSettings) -> None:
        super().__init__(app, [], WorkerSettings.of({}, lease=settings.remote_lease))
        self.id = new_desk_id()
        self.terms = settings
        self.offered: Offered = Offered()
        self.hands = self.offered
        self.streams: set[Stream] = set()
        self._by_hold: dict[Hold, Stream] = {}
        self._given: dict[str, Claim] = {}  # what tokens stand for that were signed here
        self._tokens: dict[Hold, str] = {}
        self._tasks: set[asyncio.Task[Any]] = set()  # the desk's own: no request's end ends them
        self._seen: asyncio.Task[Seen] | None = None
        self._seen_at = 0.0
        self.here = asyncio.Event()  # registered, and the liveness lock is held

    def card(self) -> dict[str, Any]:
        return {**super().card(), "tasks": "[]", "concurrency": 0}

    async def open(self) -> None:
        """As long as the service runs."""
        self.id = new_desk_id()  # one that starts again never answers for the one before
        self._watched.clear()
        self.stopping = self.hurry = self._broken = False
        self.state = "working"
        try:
            await self.arun()
        finally:
            self.here.clear()

    async def _watched_over(self) -> None:
        """Offer only with a liveness lock: without one, the jobs of a server that dies at once
        wait for their offer lease."""
        await super()._watched_over()
        self.here.set()

    def end_streams(self) -> None:
        for stream in tuple(self.streams):
            stream.end("the server is going away")

    async def _leave(self) -> None:
        self.end_streams()
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await asyncio.gather(*self._tasks, return_exceptions=True)
        await super()._leave()

    def woken(self, queue: str) -> None:
        super().woken(queue)
        self._seen = None
        for stream in self.streams:
            stream.hear(queue)

    def started(self, queues: set[str]) -> None:
        super().started(queues)
        for queue in queues:
            for stream in self.streams:
                stream.hear(queue)

    async def see(self) -> Seen:
        """Which queues have something: asked once for all streams that ask at the same time, also
        of a database that takes its time."""
        seen = self._seen
        if seen is None or (seen.done() and time.monotonic() - self._seen_at > FRESH):
            self._seen_at = time.monotonic()
            seen = self._seen = self.spawn(self._see())
        return await asyncio.shield(seen)

    async def _see(self) -> Seen:
        asked_at = time.monotonic()
        seen = await see(self.store)
        self.breakers.seen(seen.breakers, asked_at)
        await self.breakers.retire(self.steady)
        return seen

    # Circuit breakers

    def _breaker_closed(self, circuit: Circuit) -> None:
        super()._breaker_closed(circuit)
        for stream in self.streams:
            stream.reopen(circuit.queue)

    async def probe(self, stream: Stream) -> list[Claim]:
        """Offer one job of each task of a stream whose breaker is due, if nobody else probes it."""
        claims: list[Claim] = []
        for opened in self.breakers.due(stream.asker.probes, stream.credit.room):
            claims += await asyncio.shield(self.spawn(self._take_probe(stream, opened)))
        return claims

    async def _take_probe(self, stream: Stream, opened: OpenBreaker) -> list[Claim]:
        wait = Breaker().wait(opened.probes + 1, random.random())
        last_life = not stream.credit.has_a_last_life
        claims = await self.steady.arun(
            take_probe, opened, self.id, self.terms.offer_lease, wait, last_life
        )
        if claims:
            self.breakers.probed(opened, claims[0])
        return self.take(stream, claims)

    # Offer

    async def offer(self, stream: Stream, asked: ops.Asked) -> list[Claim]:
        """Claim for a stream. Whoever asked may be cancelled at any moment; this goes on, and what
        nobody waits for any more is put back."""
        return await asyncio.shield(self.spawn(self._offer(stream, asked)))

    async def _offer(self, stream: Stream, asked: ops.Asked) -> list[Claim]:
        claims = await self.steady.arun(ops.offer, asked)
        return self.take(stream, claims)

    def take(self, stream: Stream, claims: Sequence[Claim]) -> list[Claim]:
        """Claims that were made for a stream. If it is gone, they go back."""
        if spent := [claim for claim in claims if claim.at_limit]:
            self.spawn(self._end_at_limit(spent))
        fit = [claim for claim in claims if claim not in spent] if spent else claims
        kept = [claim for claim in fit if self.offered.offer(claim)]
        self.counts["offered"] += len(kept)
        if stream.closed:
            self.withdraw(kept)
            return []
        ours = [claim._replace(worker=stream.worker, offered_by=self.id) for claim in kept]
        for claim in ours:
            self._by_hold[claim.hold] = stream
        stream.credit.take(ours)
        return ours

    async def _end_at_limit(self, claims: Sequence[Claim]) -> None:
        """One by one: each is about its own row."""
        for claim in claims:
            await self.store.arun(finish, [self.carrier.decide(claim, counter_at_limit(claim))])

    def stream_of(self, claim: Claim) -> Stream | None:
        return self._by_hold.get(claim.hold)

    def promotes(self) -> bool:
        """Whether it is time to make due jobs ready; often enough for all streams together."""
        due = time.monotonic() >= self._promote_at
        if due:
            self._promote_at = time.monotonic() + PROMOTE_EVERY
        return due

    def withdraw(self, claims: Sequence[Claim]) -> None:
        """Put back what was not accepted, at once and whatever becomes of the request."""
        if claims:
            self.spawn(self._withdraw(claims))

    async def _withdraw(self, claims: Sequence[Claim]) -> None:
        try:
            self.started(await self._put_back(claims))
        finally:
            self.forget([claim.hold for claim in claims])
        self.counts["withdrawn"] += len(claims)

    async def _put_back(self, claims: Sequence[Claim]) -> set[str]:
        patience = Backoff(first=0.1, cap=1.0)
        until = time.monotonic() + self.terms.offer_lease
        while True:
            try:
                return await self.store.arun(ops.withdraw, self.id, claims)
            except OutlastError as error:
                if time.monotonic() > until:
                    log.warning("%d offers are left to their lease: %s", len(claims), error)
                    return set()
                await asyncio.sleep(patience.failed())

    # What became of offers

    def accepted(self, holds: Iterable[Hold]) -> None:
        for hold in holds:
            self._no_offer(hold)
            if stream := self._by_hold.get(hold):
                stream.credit.accepted(hold)

    def _no_offer(self, hold: Hold) -> None:
        """What a worker holds, or has held, is no longer an offer of this server."""
        job, fence, _ = hold
        self.offered.offers.pop((job, fence, self.id), None)

    def forget(self, holds: Iterable[Hold]) -> None:
        """These are in nobody's hands any more: there is room for others."""
        for hold in holds:
            self._no_offer(hold)
            self._given.pop(self._tokens.pop(hold, ""), None)
            if stream := self._by_hold.pop(hold, None):
                stream.put_down(hold)

    def signed(self, claim: Claim, key: bytes) -> str:
        """A token for it. What was signed here is known again without being read."""
        token = tokens.sign(claim, key)
        self._given[token] = claim
        self._tokens[claim.hold] = token
        return token

    def read(self, token: str, key: bytes) -> Claim | None:
        return self._given.get(token) or tokens.read(token, key)

    def watch(self, stream: Stream, holds: Iterable[Hold]) -> None:
        for hold in holds:
            self._by_hold[hold] = stream

    def leave_behind(self, stream: Stream, holds: Iterable[Hold]) -> None:
        """Its stream is gone; the worker may still have them."""
        for hold in holds:
            if self._by_hold.get(hold) is stream:
                del self._by_hold[hold]
                self._given.pop(self._tokens.pop(hold, ""), None)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            bug = not isinstance(error, OutlastError)  # whoever waits may be gone
            log.log(
                logging.ERROR if bug else logging.DEBUG, "a task of the desk failed: %s", error,
                exc_info=error if bug else None,
            )  # fmt: skip


class Office:
    """The desk as a part of the service."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def run(self) -> None:
        await self._desk.open()
