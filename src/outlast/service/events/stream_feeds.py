"""Feeds: the output of followed jobs, read once for all followers.

    store ─ one read for all jobs ─▶ feed of a job: its last rows, bounded ─▶ followers
      └──────────── a follower behind the feed reads the store itself ────────────▲

A feed has no buffer per follower: each takes rows from its own position on, at its own pace.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

from ...model.stream import StreamChunk, StreamCursor, StreamRow
from ...ops.events import JobStatus
from ...ops.streams import StreamPage
from . import frames

FEED_BYTES = 256_000  # of one job's output, kept for followers
MAX_ENCODED_BYTES = 4 * FEED_BYTES  # of its frames
ROWS_PER_READ = 200  # of all jobs together

ReadRows = Callable[[Mapping[str, StreamCursor], int], Awaitable[list[tuple[str, StreamRow]]]]


class StreamFeed:
    """The last output of one job: all rows after `start` up to `head`."""

    def __init__(self, job: str, cursor: StreamCursor) -> None:
        self.followers = 0
        self.head = cursor._replace(item=0)
        self._job = job
        self._start = self.head
        self._rows: deque[StreamRow] = deque()
        self._bytes = 0
        self._status: JobStatus | None = None
        self._polled = False
        self._changed = asyncio.Event()
        self._encoded: dict[tuple[str, str], bytes] = {}
        self._encoded_bytes = 0

    def push(self, row: StreamRow) -> None:
        self._rows.append(row)
        self._bytes += len(row.data or "")
        self.head = StreamCursor(row.fence, row.n)
        while self._bytes > FEED_BYTES:
            oldest = self._rows.popleft()
            self._bytes -= len(oldest.data or "")
            self._start = StreamCursor(oldest.fence, oldest.n)
            self._forget_frames()

    def publish(self, status: JobStatus | None, *, changed: bool) -> None:
        """Publish a status, after all rows before it were pushed."""
        known, self._polled, self._status = (self._polled, self._status), True, status
        if changed or known != (True, status):
            self._changed.set()
            self._changed = asyncio.Event()

    def reset(self) -> None:
        """Drop all rows: a backup was restored, and positions begin again."""
        self.head = self._start = StreamCursor()
        self._rows.clear()
        self._forget_frames()
        self._bytes = 0

    def include(self, cursor: StreamCursor) -> None:
        """Include a follower that has read the store up to this position. A feed without rows that
        began later, at an invalid position of another follower, begins here instead."""
        if not self._rows and cursor < self._start:
            self.head = self._start = cursor._replace(item=0)

    def reaches(self, cursor: StreamCursor) -> bool:
        """Whether the feed has all rows after a position; else a follower reads the store."""
        return cursor >= self._start

    def page(self, cursor: StreamCursor) -> StreamPage | None:
        """The rows after a position; None: the feed has not been read yet."""
        rows = [row for row in self._rows if (row.fence, row.n) >= (cursor.fence, cursor.n)]
        return StreamPage(self._status, rows, more=False) if self._polled else None

    async def wait(self, seconds: float) -> bool:
        """Wait for changes; returns whether there were any."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
                return True
        return False

    def frame(self, chunk: StreamChunk, media: str) -> bytes:
        """A chunk's frame, encoded once for all followers."""
        key = chunk.id, media
        if (known := self._encoded.get(key)) is not None:
            return known
        frame = frames.chunk_frame(self._job, chunk).encoded(media)
        if self._encoded_bytes > MAX_ENCODED_BYTES:  # drop frames of old output
            self._forget_frames()
        self._encoded[key] = frame
        self._encoded_bytes += len(frame)
        return frame

    def _forget_frames(self) -> None:
        self._encoded.clear()
        self._encoded_bytes = 0


class StreamFeeds:
    """The feeds of all followed jobs."""

    def __init__(self, read: ReadRows) -> None:
        self._read = read
        self._feeds: dict[str, StreamFeed] = {}

    def jobs(self) -> list[str]:
        return list(self._feeds)

    @contextmanager
    def follow(self, job: str, cursor: StreamCursor) -> Iterator[StreamFeed]:
        """The feed of a job, for a follower that has read the store up to this position."""
        feed = self._feeds.get(job)
        if feed is None:
            feed = self._feeds[job] = StreamFeed(job, cursor)
        feed.include(cursor)
        feed.followers += 1
        try:
            yield feed
        finally:
            feed.followers -= 1
            if not feed.followers and self._feeds.get(job) is feed:
                del self._feeds[job]

    async def poll(self, statuses: Mapping[str, JobStatus | None]) -> None:
        """Poll once, after the states of the jobs were read, so that all output of an ended job is
        pushed before its end."""
        feeds = {job: feed for job, feed in self._feeds.items() if job in statuses}
        for job, feed in feeds.items():
            if (status := statuses[job]) is not None and status.fence < feed.head.fence:
                feed.reset()
        changed: set[str] = set()
        more = bool(feeds)
        while more:
            rows = await self._read({job: feed.head for job, feed in feeds.items()}, ROWS_PER_READ)
            for job, row in rows:
                feeds[job].push(row)
                changed.add(job)
            more = len(rows) >= ROWS_PER_READ
        for job, feed in feeds.items():
            feed.publish(statuses[job], changed=job in changed)
