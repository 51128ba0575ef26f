"""What one subscriber is told, in order: what was, then what comes, without a seam.

    history, a page at a time ──▶ near its end, join the feeder ──▶ the rest of the history ──▶ live
             ▲                                                                                  │
             └──────────────── it was too slow, and its buffer was emptied ◀────────────────────┘

Whoever joins the feeder is fed what comes after a place that it has yet to reach: what lies between
is in the store. An event that comes both ways is told once, by its place.

The sequence itself may be put back, with a backup of the database: who stands beyond its end is
told so (`reset`), and goes on from there.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import suppress

from ...ops.events import Page, Standing
from . import frames
from .feeder import Feeder
from .subscriber import Subscriber

CHUNK = 64_000  # bytes that are sent at once


class Story:
    def __init__(
        self, feeder: Feeder, subscriber: Subscriber, after: int | None, standing: Standing | None
    ) -> None:
        self._feeder = feeder
        self._subscriber = subscriber
        self._after = after  # None: only what is new
        self._standing = standing
        self._told_position = 0

    async def told(self) -> AsyncGenerator[bytes, None]:
        """In parts, none of which ends within an event."""
        subscriber, media = self._subscriber, self._subscriber.media
        retry = self._feeder.settings.events_retry * random.uniform(0.75, 1.25)
        yield frames.hello(retry, media) + self._stands()
        if self._after is None:
            subscriber.position = await self._feeder.join(subscriber)
        else:
            subscriber.position = self._after
        while True:
            async for part in self._catch_up():
                yield part
            async for part in self._live():
                yield part
            if subscriber.over and subscriber.live:
                yield subscriber.last_word()
                return

    def _stands(self) -> bytes:
        """How its job stands, before anything else; not its end, which comes last."""
        if self._standing is None or self._standing.final:
            return b""
        self._subscriber.stood(self._standing)
        return frames.state(self._standing).spelled(self._subscriber.media)

    async def _catch_up(self) -> AsyncIterator[bytes]:
        subscriber = self._subscriber
        while not subscriber.live:
            if reset := await self._put_back():
                yield reset
            async for part in self._history():
                yield part
            await self._feeder.join(subscriber)
            async for part in self._history():
                yield part

    async def _put_back(self) -> bytes:
        """Whoever stands where nobody has been yet would be told nothing until others get there."""
        asked, last = self._subscriber.position, await self._feeder.last_place()
        if asked <= last:
            return b""
        self._subscriber.position = last
        return frames.reset(asked, last).spelled(self._subscriber.media)

    async def _history(self) -> AsyncIterator[bytes]:
        """From its position to the end of what there is now."""
        more = True
        while more:
            page = await self._feeder.history(self._subscriber.wanted, self._subscriber.position)
            for part in self._spelled(page):
                yield part
            more = page.more

    def _spelled(self, page: Page) -> Iterator[bytes]:
        """Its position is always that of what was handed out."""
        subscriber, part = self._subscriber, bytearray()
        for told in page.told:
            if subscriber.wanted.fits(told):
                part += frames.event(told).spelled(subscriber.media)
                subscriber.position = told.place
                if len(part) > CHUNK:
                    yield bytes(part)
                    part.clear()
        subscriber.position = page.reach
        if part:
            yield bytes(part)

    async def _live(self) -> AsyncIterator[bytes]:
        """Until its job has ended, or it was too slow."""
        subscriber = self._subscriber
        while subscriber.live:
            if part := subscriber.take(CHUNK):
                yield part
            elif subscriber.over:
                return
            elif not await self._news():
                yield self._still_here()

    async def _news(self) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._feeder.settings.events_keep_alive):
                await self._subscriber.news.wait()
                return True
        return False

    def _still_here(self) -> bytes:
        subscriber = self._subscriber
        moved = subscriber.wanted.job is None and subscriber.position > self._told_position
        self._told_position = subscriber.position
        return frames.still_here(subscriber.position if moved else None, subscriber.media)
