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
from ...ops.events import EventPage, JobStatus, StoredEvent
from ...store import Store
from ...worker.loop import Backoff
from ..auth.principals import Principal
from ..slots import EVENT_STREAMS, counting
from . import frames
from .filter import EventFilter
from .subscriber import Subscriber

log = logging.getLogger("outlast.service")

PAGE_SIZE = 500  # events that are read at once
JOBS_PER_QUERY = 1000  # jobs that are asked for at once
MAX_READERS = 4  # subscribers that read their history at the same time
MIN_POLL_GAP_S = 0.02  # seconds at least between two looks
LINGER_S = 5.0  # seconds that it goes on when the last one has left
START_TIMEOUT_S = 5.0  # seconds at least that whoever comes first waits for the beginning
RESTORE_CHECK_INTERVAL_S = 5.0  # seconds between looks whether the sequence has been put back
HINT_RESET_S = 5.0  # seconds after which what has no place yet is looked for no more at every look


class Broadcaster:
    """One for each server process; `run` it beside the server."""

    def __init__(self, store: Store, settings: ServiceSettings | None = None) -> None:
        self.settings = settings or ServiceSettings.of()
        self.counts: Counter[str] = Counter()  # came, fed, cut, looks
        self.polled_at = 0.0  # monotonic; when all had been told
        self._store = store.clone(connections=MAX_READERS + 2)
        self._position, self._tick = 0, 0
        self._check_restore_at = 0.0
        self._hint = PositionHint()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reset()

    def _reset(self) -> None:
        self.closing = asyncio.Event()
        self._reading = asyncio.Semaphore(MAX_READERS)
        self._streams_by_token: Counter[str | None] = Counter()  # by token
        self._streams_by_tenant: Counter[str | None] = Counter()
        self._followers_of_job: dict[str, set[Subscriber]] = {}
        self._followers_of_all: set[Subscriber] = set()
        self._has_followers, self._wakeup, self._ready = (
            asyncio.Event(),
            asyncio.Event(),
            asyncio.Event(),
        )

    def _bind_to_loop(self) -> None:
        """Those who followed in an event loop that has ended are gone with it."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            if self._loop is not None:
                self._reset()
            self._loop = loop

    @property
    def subscribers(self) -> int:
        return self._streams_by_token.total()

    def refuse_beyond_limits(self, who: Principal) -> None:
        """Raise if this caller may open no further stream."""
        of_token, of_tenant = self._streams_by_token[who.token], self._streams_by_tenant[who.tenant]
        EVENT_STREAMS.check(self.settings, who, self.subscribers, of_token, of_tenant)

    @property
    def lag(self) -> float:
        """Seconds since all that there was had been handed on."""
        return time.monotonic() - self.polled_at if self.subscribers and self.polled_at else 0.0

    @contextmanager
    def subscription(
        self, event_filter: EventFilter, media: str, token: str | None
    ) -> Iterator[Subscriber]:
        """A place for one who follows, for as long as this lasts, however it ends."""
        self._bind_to_loop()
        limits = self.settings
        subscriber = Subscriber(
            event_filter, media, limits.events_buffer, limits.events_buffer_bytes
        )
        self.counts["came"] += 1
        self._has_followers.set()
        try:
            with (
                counting(self._streams_by_token, token),
                counting(self._streams_by_tenant, event_filter.tenant),
            ):
                yield subscriber
        finally:
            self._remove(subscriber)

    async def go_live(self, subscriber: Subscriber) -> int:
        """Feed it from now on. What is up to the place returned it has to read for itself."""
        async with asyncio.timeout(max(START_TIMEOUT_S, self.settings.events_keep_alive)):
            await self._ready.wait()
        self._remove(subscriber)
        if subscriber.filter.job is None:
            self._followers_of_all.add(subscriber)
        else:
            self._followers_of_job.setdefault(subscriber.filter.job, set()).add(subscriber)
        subscriber.go_live(self._position, self._tick)
        self._wakeup.set()
        return self._position

    async def history(self, event_filter: EventFilter, after: int) -> EventPage:
        """A page of what was told before; whoever reads slowly keeps nobody waiting."""
        async with self._reading:
            if event_filter.job is None:
                return await self._store.arun(events.page, after, event_filter.tenant, PAGE_SIZE)
            arguments = (event_filter.job, after, event_filter.tenant, PAGE_SIZE)
            return await self._store.arun(events.page_of_job, *arguments)

    async def job_status(self, job: str, tenant: str | None) -> JobStatus | None:
        async with self._reading:
            return (await self._store.arun(events.job_status, [job], tenant)).get(job)

    async def last_position(self) -> int:
        async with self._reading:
            return await self._store.arun(events.last_position)

    async def is_over(self, job: str, after: int) -> bool:
        """Whether nothing at all was told of a job after this place."""
        async with self._reading:
            await self._assign_positions()
            if after > await self._store.arun(events.last_position):
                return False  # that end is not in this sequence
            return not (await self._store.arun(events.page_of_job, job, after, None, 1)).events

    def wake(self) -> None:
        """Something was told in this process."""
        self._wakeup.set()

    def close(self) -> None:
        """The server is going away: every stream ends in good order, to be resumed elsewhere."""
        self.closing.set()

    async def run(self) -> None:
        """Until it is cancelled."""
        self._bind_to_loop()
        try:
            while True:
                await self._has_followers.wait()
                await self._while_needed()
        finally:
            self._ready.clear()
            await self._store.aclose()

    async def _while_needed(self) -> None:
        following = asyncio.create_task(self._listen())
        try:
            await self._poll_loop()
        finally:
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following

    async def _poll_loop(self) -> None:
        backoff, left_at = Backoff(), time.monotonic()
        while self._streams_by_token or time.monotonic() < left_at + LINGER_S:
            pause = self.settings.events_poll
            try:
                await self._find_start()
                await self.poll()
                backoff.succeeded()
            except OutlastError as error:
                pause = backoff.failed()
                log.warning("events cannot be read: %s", error)
            if self._streams_by_token:
                left_at = time.monotonic()
            await self._pause(pause)
        self._has_followers.clear()
        self._ready.clear()

    async def _find_start(self) -> None:
        """Whoever comes first waits until it is known where we begin: after all that was told while
        nobody followed."""
        if not self._ready.is_set():
            await self._assign_positions()
            self._position = await self._store.arun(events.last_position)
            self._ready.set()

    async def _assign_positions(self) -> None:
        """What has been committed by now. What comes meanwhile is not waited for: where much is
        told there is always something."""
        while (await self._store.arun(events.assign_positions))[
            0
        ] >= events.MAX_POSITIONS_PER_BATCH:
            pass

    async def _pause(self, pause: float) -> None:
        await asyncio.sleep(MIN_POLL_GAP_S)
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._wakeup.wait()
        self._wakeup.clear()

    async def _listen(self) -> None:
        backoff = Backoff()
        while True:
            try:
                await self._store.listen_for_events(self._wakeup.set, MIN_POLL_GAP_S)
            except OutlastError as error:
                log.info("wake-ups of events are not heard for a while: %s", error)
            await asyncio.sleep(backoff.failed())

    async def poll(self) -> None:
        """One pass. How jobs stand is read first: all that was told before a job's end has been
        handed on when its end is. One that was given a new life meanwhile has not ended."""
        self._tick += 1
        statuses = await self._statuses(list(self._followers_of_job))
        await self._check_restore()
        redriven = await self._broadcast_new()
        for job, standing in statuses.items():
            for subscriber in tuple(self._followers_of_job.get(job, ())):
                if subscriber.since < self._tick and job not in redriven:
                    subscriber.set_status(standing)
        self.counts["looks"] += 1
        self.polled_at = time.monotonic()

    async def _check_restore(self) -> None:
        """If a backup has been put in the place of what we read, all that comes now has places that
        were told before: those who follow go back to the store."""
        if time.monotonic() < self._check_restore_at:
            return
        self._check_restore_at = time.monotonic() + RESTORE_CHECK_INTERVAL_S
        last = await self._store.arun(events.last_position)
        if last < self._position:
            log.warning("events have been put back from place %d to %d", self._position, last)
            self._position, self._hint = last, PositionHint()
            for subscriber in (
                *self._followers_of_all,
                *(s for some in self._followers_of_job.values() for s in some),
            ):
                subscriber.fall_back()

    async def _statuses(self, jobs: Sequence[str]) -> dict[str, JobStatus | None]:
        found: dict[str, JobStatus] = {}
        for start in range(0, len(jobs), JOBS_PER_QUERY):
            found |= await self._store.arun(events.job_status, jobs[start : start + JOBS_PER_QUERY])
        return {job: found.get(job) for job in jobs}

    async def _broadcast_new(self) -> set[str | None]:
        """All that is new; and which jobs got a new life by it."""
        redriven: set[str | None] = set()
        more = True
        while more:
            assigned, highest = await self._store.arun(
                events.assign_positions, self._hint.start_after()
            )
            self._hint.note_assigned(highest)
            page = await self._store.arun(events.page, self._position, None, PAGE_SIZE)
            for event in page.events:
                self._deliver(event)
            self._position = page.position
            for subscriber in self._followers_of_all:
                subscriber.advance(page.position)
            redriven |= {event.job for event in page.events if event.kind == "redrive"}
            more = page.more or assigned >= events.MAX_POSITIONS_PER_BATCH
            await asyncio.sleep(0)  # those who send have their turn
        return redriven

    def _deliver(self, event: StoredEvent) -> None:
        frame = frames.event_frame(event)
        self.counts["fed"] += 1
        for subscriber in (
            *self._followers_of_all,
            *self._followers_of_job.get(event.job or "", ()),
        ):
            subscriber.push(event, frame)

    def _remove(self, subscriber: Subscriber) -> None:
        subscriber.live = False
        self._followers_of_all.discard(subscriber)
        job = subscriber.filter.job
        if job in self._followers_of_job:
            self._followers_of_job[job].discard(subscriber)
            if not self._followers_of_job[job]:
                del self._followers_of_job[job]


class PositionHint:
    """Where to begin looking for events without a place. Numbers that were given a place long ago
    leave dead entries in the index, which somebody's old snapshot may keep there: they are stepped
    over. Who took a lower number and commits only now is found as well, every few seconds."""

    def __init__(self) -> None:
        self._start_after, self._next, self._highest = 0, 0, 0
        self._advance_at = 0.0

    def start_after(self) -> int:
        now = time.monotonic()
        if now < self._advance_at:
            return self._start_after
        self._start_after, self._next = self._next, self._highest
        self._advance_at = now + HINT_RESET_S
        return 0

    def note_assigned(self, highest: int) -> None:
        self._highest = max(self._highest, highest)
