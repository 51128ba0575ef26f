"""Reads the store for everybody who follows: so many questions, however many they are.

A wake-up only says "look". What is looked at is the store, in the order of places; so whatever gets
lost on the way, a wake-up, a connection, this process, costs time and no event.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from ...model.errors import OutlastError
from ...model.settings import ServiceSettings
from ...ops import events
from ...ops.events import Page, Standing, Told
from ...store import Store
from ...worker.loops import Backoff
from ..principals import Principal
from ..room import EVENT_STREAMS, counted
from . import frames
from .subscriber import Subscriber
from .wanted import Wanted

log = logging.getLogger("outlast.service")

PAGE = 500  # events that are read at once
JOBS = 1000  # jobs that are asked for at once
READERS = 4  # subscribers that read their history at the same time
APART = 0.02  # seconds at least between two looks
LINGER = 5.0  # seconds that it goes on when the last one has left
BEGIN_WITHIN = 5.0  # seconds at least that whoever comes first waits for the beginning
PUT_BACK = 5.0  # seconds between looks whether the sequence has been put back
LATE = 5.0  # seconds after which what has no place yet is looked for no more at every look


class Feeder:
    """One for each server process; `run` it beside the server."""

    def __init__(self, store: Store, settings: ServiceSettings | None = None) -> None:
        self.settings = settings or ServiceSettings.of()
        self.counts: Counter[str] = Counter()  # came, fed, cut, looks
        self.looked_at = 0.0  # monotonic; when all had been told
        self._store = store.twin(connections=READERS + 2)
        self._reach, self._tick = 0, 0
        self._looks_back_at = 0.0
        self._hint = Hint()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.closing = asyncio.Event()
        self._reading = asyncio.Semaphore(READERS)
        self._seats: Counter[str | None] = Counter()  # by token
        self._tenants: Counter[str | None] = Counter()
        self._of_job: dict[str, set[Subscriber]] = {}
        self._of_all: set[Subscriber] = set()
        self._needed, self._woken, self._ready = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def _here(self) -> None:
        """Those who followed in an event loop that has ended are gone with it."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            if self._loop is not None:
                self._begin_anew()
            self._loop = loop

    @property
    def subscribers(self) -> int:
        return self._seats.total()

    def refuse_beyond_limits(self, who: Principal) -> None:
        """Raise if this caller may open no further stream."""
        of_token, of_tenant = self._seats[who.token], self._tenants[who.tenant]
        EVENT_STREAMS.check(self.settings, who, self.subscribers, of_token, of_tenant)

    @property
    def lag(self) -> float:
        """Seconds since all that there was had been handed on."""
        return time.monotonic() - self.looked_at if self.subscribers and self.looked_at else 0.0

    @contextmanager
    def seat(self, wanted: Wanted, media: str, token: str | None) -> Iterator[Subscriber]:
        """A place for one who follows, for as long as this lasts, however it ends."""
        self._here()
        given = self.settings
        subscriber = Subscriber(wanted, media, given.events_buffer, given.events_buffer_bytes)
        self.counts["came"] += 1
        self._needed.set()
        try:
            with counted(self._seats, token), counted(self._tenants, wanted.tenant):
                yield subscriber
        finally:
            self._leave(subscriber)

    async def join(self, subscriber: Subscriber) -> int:
        """Feed it from now on. What is up to the place returned it has to read for itself."""
        async with asyncio.timeout(max(BEGIN_WITHIN, self.settings.events_keep_alive)):
            await self._ready.wait()
        self._leave(subscriber)
        if subscriber.wanted.job is None:
            self._of_all.add(subscriber)
        else:
            self._of_job.setdefault(subscriber.wanted.job, set()).add(subscriber)
        subscriber.go_live(self._reach, self._tick)
        self._woken.set()
        return self._reach

    async def history(self, wanted: Wanted, after: int) -> Page:
        """A page of what was told before; whoever reads slowly keeps nobody waiting."""
        async with self._reading:
            if wanted.job is None:
                return await self._store.arun(events.page, after, wanted.tenant, PAGE)
            asked = (wanted.job, after, wanted.tenant, PAGE)
            return await self._store.arun(events.page_of_job, *asked)

    async def standing(self, job: str, tenant: str | None) -> Standing | None:
        async with self._reading:
            return (await self._store.arun(events.standing, [job], tenant)).get(job)

    async def last_place(self) -> int:
        async with self._reading:
            return await self._store.arun(events.last_place)

    async def is_over(self, job: str, after: int) -> bool:
        """Whether nothing at all was told of a job after this place."""
        async with self._reading:
            await self._place_all()
            if after > await self._store.arun(events.last_place):
                return False  # that end is not in this sequence
            return not (await self._store.arun(events.page_of_job, job, after, None, 1)).told

    def wake(self) -> None:
        """Something was told in this process."""
        self._woken.set()

    def close(self) -> None:
        """The server is going away: every stream ends in good order, to be resumed elsewhere."""
        self.closing.set()

    async def run(self) -> None:
        """Until it is cancelled."""
        self._here()
        try:
            while True:
                await self._needed.wait()
                await self._while_needed()
        finally:
            self._ready.clear()
            await self._store.aclose()

    async def _while_needed(self) -> None:
        following = asyncio.create_task(self._follow())
        try:
            await self._feed()
        finally:
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following

    async def _feed(self) -> None:
        backoff, left_at = Backoff(), time.monotonic()
        while self._seats or time.monotonic() < left_at + LINGER:
            pause = self.settings.events_poll
            try:
                await self._begin()
                await self.look()
                backoff.succeeded()
            except OutlastError as error:
                pause = backoff.failed()
                log.warning("events cannot be read: %s", error)
            if self._seats:
                left_at = time.monotonic()
            await self._rest(pause)
        self._needed.clear()
        self._ready.clear()

    async def _begin(self) -> None:
        """Whoever comes first waits until it is known where we begin: after all that was told while
        nobody followed."""
        if not self._ready.is_set():
            await self._place_all()
            self._reach = await self._store.arun(events.last_place)
            self._ready.set()

    async def _place_all(self) -> None:
        """What has been committed by now. What comes meanwhile is not waited for: where much is
        told there is always something."""
        while (await self._store.arun(events.place))[0] >= events.PLACES:
            pass

    async def _rest(self, pause: float) -> None:
        await asyncio.sleep(APART)
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._woken.wait()
        self._woken.clear()

    async def _follow(self) -> None:
        backoff = Backoff()
        while True:
            try:
                await self._store.follow(self._woken.set, APART)
            except OutlastError as error:
                log.info("wake-ups of events are not heard for a while: %s", error)
            await asyncio.sleep(backoff.failed())

    async def look(self) -> None:
        """One pass. How jobs stand is read first: all that was told before a job's end has been
        handed on when its end is. One that was given a new life meanwhile has not ended."""
        self._tick += 1
        stands = await self._stands(list(self._of_job))
        await self._look_back()
        redriven = await self._hand_on()
        for job, standing in stands.items():
            for subscriber in tuple(self._of_job.get(job, ())):
                if subscriber.since < self._tick and job not in redriven:
                    subscriber.stand(standing)
        self.counts["looks"] += 1
        self.looked_at = time.monotonic()

    async def _look_back(self) -> None:
        """If a backup has been put in the place of what we read, all that comes now has places that
        were told before: those who follow go back to the store."""
        if time.monotonic() < self._looks_back_at:
            return
        self._looks_back_at = time.monotonic() + PUT_BACK
        last = await self._store.arun(events.last_place)
        if last < self._reach:
            log.warning("events have been put back from place %d to %d", self._reach, last)
            self._reach, self._hint = last, Hint()
            for subscriber in (*self._of_all, *(s for some in self._of_job.values() for s in some)):
                subscriber.fall_back()

    async def _stands(self, jobs: Sequence[str]) -> dict[str, Standing | None]:
        found: dict[str, Standing] = {}
        for start in range(0, len(jobs), JOBS):
            found |= await self._store.arun(events.standing, jobs[start : start + JOBS])
        return {job: found.get(job) for job in jobs}

    async def _hand_on(self) -> set[str | None]:
        """All that is new; and which jobs got a new life by it."""
        redriven: set[str | None] = set()
        more = True
        while more:
            placed, highest = await self._store.arun(events.place, self._hint.above())
            self._hint.placed(highest)
            page = await self._store.arun(events.page, self._reach, None, PAGE)
            for told in page.told:
                self._give(told)
            self._reach = page.reach
            for subscriber in self._of_all:
                subscriber.passed(page.reach)
            redriven |= {told.job for told in page.told if told.kind == "redrive"}
            more = page.more or placed >= events.PLACES
            await asyncio.sleep(0)  # those who send have their turn
        return redriven

    def _give(self, told: Told) -> None:
        frame = frames.event(told)
        self.counts["fed"] += 1
        for subscriber in (*self._of_all, *self._of_job.get(told.job or "", ())):
            subscriber.give(told, frame)

    def _leave(self, subscriber: Subscriber) -> None:
        subscriber.live = False
        self._of_all.discard(subscriber)
        job = subscriber.wanted.job
        if job in self._of_job:
            self._of_job[job].discard(subscriber)
            if not self._of_job[job]:
                del self._of_job[job]


class Hint:
    """Where to begin looking for events without a place. Numbers that were given a place long ago
    leave dead entries in the index, which somebody's old snapshot may keep there: they are stepped
    over. Who took a lower number and commits only now is found as well, every few seconds."""

    def __init__(self) -> None:
        self._above, self._next, self._highest = 0, 0, 0
        self._moves_at = 0.0

    def above(self) -> int:
        now = time.monotonic()
        if now < self._moves_at:
            return self._above
        self._above, self._next = self._next, self._highest
        self._moves_at = now + LATE
        return 0

    def placed(self, highest: int) -> None:
        self._highest = max(self._highest, highest)
