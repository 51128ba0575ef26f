"""A live stream with its own reads: starts and successes, or the events of one flow.

Stored events are read once for all subscribers (`broadcaster`). These streams read the jobs
themselves, by their own filters, and are few.
"""

from __future__ import annotations

import asyncio
import random
import time

from starlette.types import Send

from ...live_event_reader import LiveBatch, LiveReader
from ...ops.event_filter import EventFilter
from ...ops.live_events import LiveCursor
from ..streaming import StreamCaller
from . import frames
from .stream import EventStream


class LiveEventStream(EventStream):
    def __init__(
        self, call: StreamCaller, event_filter: EventFilter, media: str, after: str | None
    ) -> None:
        super().__init__(call, event_filter, media, None)
        cursor = None if after is None else LiveCursor.parse(after)
        self._reader = LiveReader(self._broadcaster.read, event_filter, cursor)

    async def send_chunks(self, send: Send) -> None:
        settings, media = self._broadcaster.settings, self._media
        retry = settings.events_retry * random.uniform(0.75, 1.25)
        first = frames.retry_bytes(retry, media) or frames.keep_alive_bytes(None, media)
        await self.send_chunk(send, first)
        batch, sent_at = LiveBatch(await self._reader.open(), more=True), time.monotonic()
        while True:
            chunk = b"".join(frames.live_frame(event).encoded(media) for event in batch.events)
            if not chunk and time.monotonic() - sent_at >= settings.events_keep_alive:
                chunk = frames.keep_alive_bytes(None, media)
            if chunk:
                await self.send_chunk(send, chunk)
                sent_at = time.monotonic()
            self._sent = str(self._reader.cursor)
            if batch.ended:
                return
            if not batch.more:
                await asyncio.sleep(min(settings.events_poll, settings.events_keep_alive))
            batch = await self._reader.read()
