"""The events of one subscriber, in order: history, then live, without a gap.

    history, page by page ──▶ near its end, subscribe ──▶ the rest of the history ──▶ live
             ▲                                                                          │
             └──────────── it was too slow, and its buffer was emptied ◀────────────────┘

The broadcaster delivers events after a position ahead of the subscriber; the events between are
read from the store. An event that arrives both ways is sent once, by its position.

A restored backup may set the sequence back: a subscriber beyond its end gets a `reset`, and
continues from there.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import suppress

from ...ops.events import EventPage, JobStatus
from . import frames
from .broadcaster import Broadcaster
from .subscriber import Subscriber

CHUNK_BYTES = 64_000  # bytes per chunk


class Replay:
    def __init__(
        self,
        broadcaster: Broadcaster,
        subscriber: Subscriber,
        after: int | None,
        status: JobStatus | None,
    ) -> None:
        self._broadcaster = broadcaster
        self._subscriber = subscriber
        self._after = after  # None: only new events
        self._status = status
        self._sent_position = 0

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """The chunks of the stream, each with whole events."""
        subscriber, media = self._subscriber, self._subscriber.media
        retry = self._broadcaster.settings.events_retry * random.uniform(0.75, 1.25)
        yield frames.retry_bytes(retry, media) + self._initial_status()
        if self._after is None:
            subscriber.position = await self._broadcaster.go_live(subscriber)
        else:
            subscriber.position = self._after
        while True:
            async for part in self._catch_up():
                yield part
            async for part in self._live():
                yield part
            if subscriber.over and subscriber.live:
                yield subscriber.end_frame()
                return

    def _initial_status(self) -> bytes:
        """The state of its job, sent first."""
        if self._status is None or self._status.final:
            return b""
        self._subscriber.status_changed(self._status)
        return frames.state_frame(self._status).encoded(self._subscriber.media)

    async def _catch_up(self) -> AsyncIterator[bytes]:
        subscriber = self._subscriber
        while not subscriber.live:
            if reset := await self._check_restored():
                yield reset
            async for part in self._history():
                yield part
            await self._broadcaster.go_live(subscriber)
            async for part in self._history():
                yield part

    async def _check_restored(self) -> bytes:
        """Reset a position beyond the end, which would receive nothing until the sequence reaches
        it."""
        requested, last = self._subscriber.position, await self._broadcaster.last_position()
        if requested <= last:
            return b""
        self._subscriber.position = last
        return frames.reset_frame(requested, last).encoded(self._subscriber.media)

    async def _history(self) -> AsyncIterator[bytes]:
        """The events from its position to the current end of the store."""
        more = True
        while more:
            page = await self._broadcaster.history(
                self._subscriber.filter, self._subscriber.position
            )
            for part in self._encode(page):
                yield part
            more = page.more

    def _encode(self, page: EventPage) -> Iterator[bytes]:
        """Encode a page; the position advances with the delivered events."""
        subscriber, part = self._subscriber, bytearray()
        for event in page.events:
            if subscriber.filter.matches(event):
                part += frames.event_frame(event).encoded(subscriber.media)
                subscriber.position = event.position
                if len(part) > CHUNK_BYTES:
                    yield bytes(part)
                    part.clear()
        subscriber.position = page.position
        if part:
            yield bytes(part)

    async def _live(self) -> AsyncIterator[bytes]:
        """The live events, until the job has ended or the subscriber was too slow."""
        subscriber = self._subscriber
        while subscriber.live:
            if part := subscriber.take(CHUNK_BYTES):
                yield part
            elif subscriber.over:
                return
            elif not await self._has_changes():
                yield self._keep_alive()

    async def _has_changes(self) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._broadcaster.settings.events_keep_alive):
                await self._subscriber.changed.wait()
                return True
        return False

    def _keep_alive(self) -> bytes:
        subscriber = self._subscriber
        moved = subscriber.filter.job is None and subscriber.position > self._sent_position
        self._sent_position = subscriber.position
        return frames.keep_alive_bytes(subscriber.position if moved else None, subscriber.media)
