"""Broadcast events: one reader of the store for all subscribers.

A notification only triggers a poll of the store, in the order of positions. So a lost notification,
connection or process delays events, but loses none.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import ParamSpec, TypeVar

from ...loops import Backoff, ReconnectBackoff
from ...model.errors import OutlastError
from ...model.settings import ServiceSettings
from ...model.stream import StreamCursor, StreamRow
from ...ops import events, streams
from ...ops.event_filter import EventFilter
from ...ops.events import EventPage, JobStatus, StoredEvent
from ...ops.operation import Op
from ...store import Store
from ..auth.principals import Principal
from ..slots import EVENT_STREAMS, counting
from . import frames
from .position_hint import PositionHint
from .stream_feeds import StreamFeeds
from .subscriber import Subscriber

log = logging.getLogger("outlast.service")

P = ParamSpec("P")
T = TypeVar("T")

PAGE_SIZE = 500  # events per read
JOBS_PER_QUERY = 1000
MAX_READERS = 4  # concurrent readers of history
MIN_POLL_GAP_S = 0.02  # minimum seconds between two polls
LINGER_S = 5.0  # seconds until it stops after the last subscriber has left
START_TIMEOUT_S = 5.0  # minimum seconds that the first subscriber waits for the start
RESTORE_CHECK_INTERVAL_S = 5.0  # seconds between checks whether the sequence was set back


class Broadcaster:
    """One per server process; `run` it beside the server."""

    def __init__(self, store: Store, settings: ServiceSettings | None = None) -> None:
        self.settings = settings or ServiceSettings.of()
        self.counts: Counter[str] = Counter()  # subscribed, delivered, cut, polls
        self.polled_at = 0.0  # monotonic; when all events had been delivered
        self._store = store.clone(connections=MAX_READERS + 2)
        self._position, self._tick = 0, 0
        self._check_restore_at = 0.0
        self._poll_backoff = Backoff()
        self._watch_backoff = ReconnectBackoff()
        self._hint = PositionHint()
        self.feeds = StreamFeeds(self._streams_after)
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
        """Drop the subscriptions of an event loop that has ended."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            if self._loop is not None:
                self._reset()
            self._loop = loop

    @property
    def subscribers(self) -> int:
        return self._streams_by_token.total()

    def refuse_beyond_limits(self, who: Principal) -> None:
        """Refuse a caller that may open no further stream."""
        of_token, of_tenant = self._streams_by_token[who.token], self._streams_by_tenant[who.tenant]
        EVENT_STREAMS.check(self.settings, who, self.subscribers, of_token, of_tenant)

    @property
    def lag(self) -> float:
        """Seconds since all stored events had been delivered."""
        return time.monotonic() - self.polled_at if self.subscribers and self.polled_at else 0.0

    @contextmanager
    def subscription(
        self, event_filter: EventFilter, media: str, token: str | None
    ) -> Iterator[Subscriber]:
        """Subscribe for the duration of this context."""
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
        """Start delivery. The subscriber reads events up to the returned position itself."""
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
        """A page of history; a slow reader delays no other."""
        async with self._reading:
            if event_filter.job is None:
                return await self._store.arun(events.page, after, event_filter.tenant, PAGE_SIZE)
            arguments = (event_filter.job, after, event_filter.tenant, PAGE_SIZE)
            return await self._store.arun(events.page_of_job, *arguments)

    async def read(self, operation: Callable[P, Op[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an operation for a stream that reads for itself; few do at the same time."""
        async with self._reading:
            return await self._store.arun(operation, *args, **kwargs)

    async def _streams_after(
        self, cursors: Mapping[str, StreamCursor], limit: int
    ) -> list[tuple[str, StreamRow]]:
        return await self._store.arun(streams.streams_after, cursors, limit)

    async def job_status(self, job: str, tenant: str | None) -> JobStatus | None:
        async with self._reading:
            return (await self._store.arun(events.job_status, [job], tenant)).get(job)

    async def last_position(self) -> int:
        async with self._reading:
            return await self._store.arun(events.last_position)

    async def is_over(self, job: str, after: int) -> bool:
        """Whether a job has no event after this position."""
        async with self._reading:
            await self._assign_positions()
            if after > await self._store.arun(events.last_position):
                return False  # its end is not in this sequence
            return not (await self._store.arun(events.page_of_job, job, after, None, 1)).events

    def wake(self) -> None:
        """Poll soon: a notification within this process."""
        self._wakeup.set()

    def open(self) -> None:
        """Accept streams, also after a shutdown."""
        self.closing.clear()

    def close(self) -> None:
        """At shutdown, end every stream cleanly, to be resumed elsewhere."""
        self.closing.set()

    async def run(self) -> None:
        """Run until cancelled."""
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
        backoff, left_at = self._poll_backoff, time.monotonic()
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
        """Find the start position, for which the first subscriber waits: after all events that were
        stored without subscribers."""
        if not self._ready.is_set():
            await self._assign_positions()
            self._position = await self._store.arun(events.last_position)
            self._ready.set()

    async def _assign_positions(self) -> None:
        """Assign positions to events committed by now, but not to later ones: under load this would
        never end."""
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
        """Listen for notifications. The first one after an outage ends the pause of the poll."""
        backoff = self._watch_backoff

        def notified() -> None:
            backoff.succeeded()
            self._wakeup.set()

        while True:
            try:
                await self._store.listen_for_events(notified, MIN_POLL_GAP_S)
            except OutlastError as error:
                level = logging.DEBUG if backoff.failures else logging.INFO
                log.log(level, "notifications of events are interrupted: %s", error)
            await asyncio.sleep(backoff.failed())

    async def poll(self) -> None:
        """Poll once. Job states are read first, so that all events before a job's end are delivered
        before the end. A job that was redriven meanwhile has not ended."""
        self._tick += 1
        jobs = {*self._followers_of_job, *self.feeds.jobs()}
        statuses = await self._statuses(list(jobs))
        await self._check_restore()
        await self.feeds.poll(statuses)
        redriven = await self._broadcast_new()
        for job, standing in statuses.items():
            for subscriber in tuple(self._followers_of_job.get(job, ())):
                if subscriber.since < self._tick and job not in redriven:
                    subscriber.set_status(standing)
        self.counts["looks"] += 1
        self.polled_at = time.monotonic()

    async def _check_restore(self) -> None:
        """Detect a restored backup: new events get positions that were used before, so subscribers
        return to the store."""
        if time.monotonic() < self._check_restore_at:
            return
        self._check_restore_at = time.monotonic() + RESTORE_CHECK_INTERVAL_S
        last = await self._store.arun(events.last_position)
        if last < self._position:
            log.warning(
                "the sequence of events was set back from position %d to %d", self._position, last
            )
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
        """Deliver all new events; returns the jobs that were redriven by them."""
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
            await asyncio.sleep(0)  # let senders run
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
