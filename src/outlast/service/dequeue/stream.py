"""One remote worker's stream: jobs are offered as long as it can hold more.

What the worker holds is known from the reports that pass here, and every few seconds from the
database: so nothing is lost count of when reports go through another server, or a claim is lost.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ...model.errors import DeadlineExceeded, OutlastError, StoreUnavailable
from ...model.job import Claim, Hold
from ...ops import duties
from ...ops import offer as ops
from ...ops.claim import Seen
from ...store import Store
from ...worker.breaker import HeldTasks
from ...worker.lookout import Lookout
from ...worker.loops import Backoff
from .asker import Asker
from .credit import Credit
from .frames import Format, Frame, offers

if TYPE_CHECKING:
    from .desk import Desk

log = logging.getLogger("outlast.service")

COUNT_EVERY = 1.0  # seconds between looks at what the worker holds by the database
MOMENT = 0.005  # seconds
MOST_AT_ONCE = 200  # jobs claimed in one go

Send = Callable[[bytes], Awaitable[None]]


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
        self.credit = Credit(asker.credit, desk.terms)
        self._along: list[Claim] = []  # claimed with a report, and not sent yet
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
        held = self.credit.held
        self.desk.withdraw([held[hold] for hold in self.credit.unaccepted])
        self.desk.leave_behind(self, held)

    def end(self, why: str) -> None:
        self._why = self._why or why
        self._news.set()

    async def _arrive(self) -> None:
        self.desk.streams.add(self)
        store = self.desk.store
        await store.arun(duties.arrive, self._card)
        before = await store.arun(ops.owned, self.worker)
        self.credit.held = {claim.hold: claim for claim in before}
        self.desk.watch(self, self.credit.held)

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
        if self.credit.nearly_used_up and not self._along:
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
        if self.credit.room > 0:
            until.append(now + self._lookout.pause())
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, min(most, *(at - now for at in until)))):
                await self._news.wait()
        self._news.clear()

    # Offer

    async def _gather(self) -> None:
        """A busy worker puts down many jobs in a moment: then they are replaced together."""
        until = time.monotonic() + MOMENT
        while self.credit.nearly_used_up and not self._along:
            if (left := until - time.monotonic()) <= 0:
                break
            self._news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._news.wait()
        self._news.set()

    async def _offer(self) -> list[Claim] | None:
        """What there was in the queue whose turn it is; None: there is none to ask."""
        if self.credit.room <= 0:
            return None
        if self._lookout.wait() == 0:
            await self._lookout.look(self.desk.store)
            if self.desk.breakers.open and (probes := await self.desk.probe(self)):
                return probes
        self._lookout.held = self._held()
        if not (queues := self._lookout.next()):
            return None
        if (asked := self._asked(queues, self.credit.room)) is None:
            return None
        asked_at = time.monotonic()
        try:
            claims = await self.desk.offer(self, asked)
        except OutlastError as error:
            if isinstance(error, StoreUnavailable | DeadlineExceeded):
                self._lookout.not_asked(asked)
            else:
                self._lookout.failed(asked)
            raise
        finally:
            self.credit.asking -= asked.limit
        self._lookout.claimed(asked, claims)
        if not claims and asked.queue in self._lookout.held:
            self._lookout.rest_held(asked.queues, time.monotonic() - asked_at)
        return claims

    def along(self, ending: int) -> ops.Asked | None:
        """What to claim in the very round trip that ends so many of the worker's jobs."""
        room = self.credit.room + ending
        self._lookout.held = self._held()
        if self.closed or self._why or room <= 0 or not (queues := self._lookout.next()):
            return None
        return self._asked(queues, room)

    def claimed_along(self, asked: ops.Asked, claims: Sequence[Claim]) -> None:
        self.credit.asking -= asked.limit
        self._lookout.claimed(asked, claims)
        self._along += self.desk.take(self, claims)
        self._news.set()

    def not_claimed_along(self, asked: ops.Asked) -> None:
        """It could not be asked: there may be something all the same."""
        self.credit.asking -= asked.limit
        self._lookout.not_asked(asked)
        self._news.set()

    def _claimed_along(self) -> list[Claim] | None:
        claims, self._along = self._along, []
        return claims or None

    def _asked(self, queues: tuple[str, ...], room: int) -> ops.Asked | None:
        """At most half of what it can hold: while one half is on its way, the other runs. None: all
        of its tasks are held back there by breakers."""
        asker = self.asker
        held = self._lookout.held.get(queues[0])  # the same in all of them
        tasks = tuple(task for task in asker.tasks if task not in held) if held else asker.tasks
        if held and not tasks:
            self._lookout.rest_held(queues)
            return None
        limit = min(room, (self.credit.most + 1) // 2, MOST_AT_ONCE)
        self.credit.asking += limit
        return ops.Asked(
            worker=self.desk.id,
            queue=queues[0],
            others=queues[1:],
            limit=limit,
            lease=self.desk.terms.offer_lease,
            promote=self.desk.promotes(),
            last_life=not self.credit.has_a_last_life,
            place=self._lookout.place(queues[0]) if len(queues) == 1 else None,
            tasks=tasks,
            tenant=asker.tenant,
        )

    def _held(self) -> HeldTasks:
        """Tasks that breakers hold back. A worker of one tenant may not probe: where it is the only
        one that could, they do not hold it back for ever."""
        breakers = self.desk.breakers
        return breakers.held if self.asker.tenant is None else breakers.held_while_probed

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

    def put_down(self, hold: Hold) -> None:
        if self.credit.put_down(hold):
            self._news.set()

    async def _count(self) -> None:
        """What the worker holds by the database, and whether it accepts what it is offered."""
        self._count_at = time.monotonic() + COUNT_EVERY
        await self._live()
        if not self.credit.held:
            return
        found = await self.desk.store.arun(ops.standing, list(self.credit.held.values()))
        for hold, owner in found.items():
            if owner == self.worker:
                self.desk.accepted([hold])
            elif owner is None:
                if self.credit.lapsed(hold):
                    self.desk.counts["lapsed"] += 1
                    self.end("an offer was not accepted in time")
                self.desk.forget([hold])

    async def _live(self) -> None:
        """As often as a local worker says that it lives."""
        if time.monotonic() < self._live_at:
            return
        self._live_at = time.monotonic() + self.desk.settings.renew_every
        store = self.desk.store
        known, _ = await store.arun(duties.live, self.worker, len(self.credit.held), "working")
        if not known:
            await store.arun(duties.arrive, self._card)

    # News

    def reopen(self, queue: str) -> None:
        self._lookout.reopen(queue)
        self._news.set()

    def hear(self, queue: str) -> None:
        if queue.startswith("!"):
            self._renew = True
        else:
            self._lookout.hear(queue)
        self._news.set()

    @property
    def _card(self) -> dict[str, object]:
        return self.asker.card(self.desk.terms.remote_lease)

    def _hello(self) -> Frame:
        terms = self.desk.terms
        return {
            "type": "hello",
            "worker": self.worker,
            "credit": self.asker.credit,
            "lease": terms.remote_lease,
            "offer_lease": terms.offer_lease,
            "keep_alive": terms.keep_alive,
            "traces": True,  # reports may have a `trace`
        }
