"""One remote worker's stream: jobs are offered as long as it can hold more.

The worker says once how many jobs it can hold. What it holds is known from the reports that pass
here, and every few seconds from the database, so that nothing is lost count of when reports go
through another server, or when a claim is lost: no credit has to be given back.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from json import dumps
from typing import TYPE_CHECKING

from ...model.errors import DeadlineExceeded, OutlastError, StoreUnavailable
from ...model.job import Claim, Hold
from ...ops import duties
from ...ops import offer as ops
from ...ops.claim import Seen
from ...store import Store
from ...version import VERSION
from ...worker.lookout import Lookout
from ...worker.loops import Backoff
from .frames import Format, Frame, offers

if TYPE_CHECKING:
    from .desk import Desk

log = logging.getLogger("outlast.service")

COUNT_EVERY = 1.0  # seconds between looks at what the worker holds by the database
MOMENT = 0.005  # seconds
AHEAD_FOR = 0.25  # seconds for which a worker's word counts that it would take more
MOST_AT_ONCE = 200  # jobs claimed in one go

Send = Callable[[bytes], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Asker:
    """Who opened a stream, and for what."""

    worker: str  # its name in our tables
    host: str
    pid: int
    queues: frozenset[str] | None
    tasks: tuple[str, ...]
    tenant: str | None
    credit: int  # jobs that it can hold at once


class Outlook(Lookout):
    """Looks where all the other streams look."""

    def __init__(self, desk: Desk, queues: frozenset[str] | None) -> None:
        super().__init__(queues, desk.settings)
        self._desk = desk

    async def _see(self, store: Store) -> Seen:
        return await self._desk.see()


class Stream:
    def __init__(self, desk: Desk, asker: Asker, format: Format, key: bytes) -> None:
        self.desk = desk
        self.asker = asker
        self.worker = asker.worker
        self.closed = False
        self._format = format
        self._key = key
        self._lookout = Outlook(desk, asker.queues)
        self._held: dict[Hold, Claim] = {}  # offered here, or run by the worker before
        self._unaccepted: dict[Hold, float] = {}  # until when
        self._along: list[Claim] = []  # claimed with a report, and not sent yet
        self._asking = 0  # jobs that are being claimed for it
        self._more = 0  # jobs beyond its credit that it would take
        self._more_until = 0.0
        self._news = asyncio.Event()
        self._why = ""  # it ends
        self._renew = False  # the worker should renew, and learn what to stop
        self._backoff = Backoff()
        now = time.monotonic()
        self._ends_at = now + desk.terms.stream_life * random.uniform(0.9, 1.0)
        self._count_at = now + COUNT_EVERY
        self._live_at = now
        self._silent_since = now

    # From begin to end

    async def run(self, send: Send) -> None:
        await self._arrive()
        await self._say(send, self._hello())
        while not self._why:
            try:
                await self._turn(send)
                self._backoff.succeeded()
            except OutlastError as error:
                wait = self._backoff.failed()
                log.warning("a stream's turn failed (%s); next try in %.1f s", error, wait)
                await self._rest(wait)
        await self._say(send, {"type": "bye", "reason": self._why})

    def close(self) -> None:
        """On every way out, without waiting: what was not accepted goes back at once."""
        self.closed = True
        self.desk.streams.discard(self)
        self.desk.withdraw([self._held[hold] for hold in self._unaccepted])
        self.desk.leave_behind(self, self._held)

    def end(self, why: str) -> None:
        self._why = self._why or why
        self._news.set()

    async def _arrive(self) -> None:
        self.desk.streams.add(self)
        store = self.desk.store
        await store.arun(duties.arrive, self._card())
        before = await store.arun(ops.owned, self.worker)
        self._held = {claim.hold: claim for claim in before}
        self.desk.watch(self, self._held)

    async def _turn(self, send: Send) -> None:
        if self._renew:
            self._renew = False
            await self._say(send, {"type": "renew"})
        now = time.monotonic()
        if now >= self._ends_at:
            self.end("this stream has lived long enough: open the next one")
            return
        if now >= self._count_at:
            await self._count()
        if self._nearly_full() and not self._along:
            await self._gather()
        claims = self._claimed_along() or await self._offer()
        if claims is not None:
            await self._send(send, claims)
        elif now - self._silent_since >= self.desk.terms.keep_alive:
            await self._bytes(send, self._format.silence)
        else:
            await self._rest()

    async def _rest(self, most: float = 60.0) -> None:
        now = time.monotonic()
        until = [self._ends_at, self._count_at, self._silent_since + self.desk.terms.keep_alive]
        if self._room() > 0:
            until.append(now + self._lookout.wait())
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, min(most, *(at - now for at in until)))):
                await self._news.wait()
        self._news.clear()

    # Offer

    def _nearly_full(self) -> bool:
        return 0 < self._room() < self._credit() // 2

    async def _gather(self) -> None:
        """A busy worker puts down many jobs in a moment: then they are replaced together."""
        until = time.monotonic() + MOMENT
        while self._nearly_full() and not self._along and (left := until - time.monotonic()) > 0:
            self._news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._news.wait()
        self._news.set()

    async def _offer(self) -> list[Claim] | None:
        """What there was in the queue whose turn it is; None: there is none to ask."""
        room = self._room()
        if room <= 0:
            return None
        if self._lookout.wait() == 0:
            await self._lookout.look(self.desk.store)
        if (queue := self._lookout.next()) is None:
            return None
        asked = self._asked(queue, room)
        try:
            claims = await self.desk.offer(self, asked)
        except OutlastError as error:
            if isinstance(error, StoreUnavailable | DeadlineExceeded):
                self._lookout.hear(queue)
            else:
                self._lookout.failed(queue)
            raise
        finally:
            self._asking -= asked.limit
        self._lookout.claimed(asked, claims)
        return claims

    def along(self, ending: int) -> ops.Asked | None:
        """What to claim in the very round trip that ends so many of the worker's jobs."""
        room = self._room() + ending
        if self.closed or self._why or room <= 0 or (queue := self._lookout.next()) is None:
            return None
        return self._asked(queue, room)

    def claimed_along(self, asked: ops.Asked, claims: Sequence[Claim]) -> None:
        self._asking -= asked.limit
        self._lookout.claimed(asked, claims)
        self._along += self.desk.take(self, claims)
        self._news.set()

    def not_claimed_along(self, asked: ops.Asked) -> None:
        """It could not be asked: there may be something all the same."""
        self._asking -= asked.limit
        self._lookout.hear(asked.queue)
        self._news.set()

    def _claimed_along(self) -> list[Claim] | None:
        claims, self._along = self._along, []
        return claims or None

    def _asked(self, queue: str, room: int) -> ops.Asked:
        """At most half of what it can hold: while one half is on its way, the other runs."""
        asker = self.asker
        limit = min(room, (self._credit() + 1) // 2, MOST_AT_ONCE)
        self._asking += limit
        return ops.Asked(
            worker=self.desk.id,
            queue=queue,
            limit=limit,
            lease=self.desk.terms.offer_lease,
            promote=self.desk.promotes(),
            last_life=not any(claim.last_life for claim in self._held.values()),
            place=self._lookout.place(queue),
            tasks=asker.tasks,
            tenant=asker.tenant,
        )

    async def _send(self, send: Send, claims: Sequence[Claim]) -> None:
        """What cannot be sent is not accepted, so `close` puts back every one of them."""
        for frame in offers(claims, lambda claim: self.desk.signed(claim, self._key)):
            await self._say(send, frame)

    async def _say(self, send: Send, frame: Frame) -> None:
        await self._bytes(send, self._format.write(frame))

    async def _bytes(self, send: Send, data: bytes) -> None:
        """A worker that takes in nothing for the time of an offer is not waited for."""
        async with asyncio.timeout(self.desk.terms.offer_lease):
            await send(data)
        self._silent_since = time.monotonic()

    # Count

    def _room(self) -> int:
        return self._credit() - len(self._held) - self._asking

    def _credit(self) -> int:
        """What it said when it came, and what it said beside its last report: a worker whose jobs
        are short has the next ones before it is through with these. That is only true for a
        moment, so what is not said again is forgotten."""
        return self.asker.credit + (self._more if time.monotonic() < self._more_until else 0)

    def take_ahead(self, more: int) -> None:
        self._more = min(more, self.desk.terms.max_credit - self.asker.credit)
        self._more_until = time.monotonic() + AHEAD_FOR

    def take(self, claims: Sequence[Claim]) -> None:
        until = time.monotonic() + self.desk.terms.offer_lease
        for claim in claims:
            self._held[claim.hold] = claim
            self._unaccepted[claim.hold] = until

    def accepted(self, hold: Hold) -> None:
        self._unaccepted.pop(hold, None)

    def put_down(self, hold: Hold) -> None:
        self._unaccepted.pop(hold, None)
        if self._held.pop(hold, None) is not None:
            self._news.set()

    async def _count(self) -> None:
        """What the worker holds by the database, and whether it accepts what it is offered."""
        self._count_at = time.monotonic() + COUNT_EVERY
        await self._live()
        if not self._held:
            return
        found = await self.desk.store.arun(ops.standing, list(self._held))
        now = time.monotonic()
        for hold, owner in found.items():
            if owner == self.worker:
                self.desk.accepted([hold])
            elif owner is None:
                if self._unaccepted.get(hold, now) < now:
                    self.desk.counts["lapsed"] += 1
                    self.end("an offer was not accepted in time")
                self.desk.forget([hold])

    async def _live(self) -> None:
        """As often as a local worker says that it lives."""
        if time.monotonic() < self._live_at:
            return
        self._live_at = time.monotonic() + self.desk.settings.renew_every
        store = self.desk.store
        known, _ = await store.arun(duties.live, self.worker, len(self._held), "working")
        if not known:
            await store.arun(duties.arrive, self._card())

    # News

    def hear(self, queue: str) -> None:
        if queue.startswith("!"):
            self._renew = True
        else:
            self._lookout.hear(queue)
        self._news.set()

    def _hello(self) -> Frame:
        terms = self.desk.terms
        return {
            "type": "hello",
            "worker": self.worker,
            "credit": self.asker.credit,
            "lease": terms.remote_lease,
            "offer_lease": terms.offer_lease,
            "keep_alive": terms.keep_alive,
        }

    def _card(self) -> dict[str, object]:
        asker = self.asker
        return {
            "id": self.worker,
            "host": asker.host,
            "pid": asker.pid,
            "queues": None if asker.queues is None else dumps(sorted(asker.queues)),
            "tasks": dumps(asker.tasks),
            "concurrency": asker.credit,
            "version": VERSION,
            "lease": self.desk.terms.remote_lease,
        }
