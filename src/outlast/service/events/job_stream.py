"""The stream of a job's output: stored output, then live output, then the end."""

from __future__ import annotations

import random

from starlette.types import Send

from ...model.stream import StreamCursor
from ...ops.event_filter import EventFilter
from ...stream_reader import StreamBatch, StreamReader
from ..streaming import StreamCaller
from . import frames
from .stream import EventStream
from .stream_feeds import StreamFeed


class JobOutputStream(EventStream):
    def __init__(self, call: StreamCaller, job: str, media: str, cursor: StreamCursor) -> None:
        super().__init__(call, EventFilter(job=job, tenant=call.who.tenant), media, None)
        self._job = job
        self._reader = StreamReader(self._broadcaster.read, job, cursor, call.who.tenant)
        self._sent = str(cursor)

    async def send_chunks(self, send: Send) -> None:
        settings, media = self._broadcaster.settings, self._media
        retry = settings.events_retry * random.uniform(0.75, 1.25)
        first = frames.retry_bytes(retry, media) or frames.keep_alive_bytes(None, media)
        await self.send_chunk(send, first)
        batch = await self._reader.read()
        with self._broadcaster.feeds.follow(self._job, self._reader.cursor) as feed:
            while True:
                await self._send_batch(send, batch, feed)
                if batch.ended:
                    return
                batch = await self._next(send, feed, batch.more)

    async def _next(self, send: Send, feed: StreamFeed, more: bool) -> StreamBatch:
        """The next output: from the store if the feed does not reach back that far, else from the
        feed when it has new rows."""
        while not more and feed.reaches(self._reader.cursor):
            if (page := feed.page(self._reader.cursor)) is not None:
                batch = self._reader.take(page)
                if batch.chunks or batch.ended or batch.more:
                    return batch
            if not await feed.wait(self._broadcaster.settings.events_keep_alive):
                await self.send_chunk(send, frames.keep_alive_bytes(None, self._media))
        return await self._reader.read()

    async def _send_batch(self, send: Send, batch: StreamBatch, feed: StreamFeed) -> None:
        parts = [feed.frame(chunk, self._media) for chunk in batch.chunks]
        if batch.ended:
            cursor = str(self._reader.cursor)
            end = frames.stream_end_frame(self._job, batch.status, cursor)
            parts.append(end.encoded(self._media))
        if parts:
            await self.send_chunk(send, b"".join(parts))
        self._sent = str(self._reader.cursor)
