"""One who follows: where it stands, and a bounded buffer that the feeder puts into.

The feeder never waits for anybody. Where a buffer is full, it is emptied, and its subscriber reads
from the store what it has missed, at its own pace, until it has caught up.
"""

from __future__ import annotations

import asyncio
from collections import deque

from ...ops.events import JobStatus, StoredEvent
from . import frames
from .filter import EventFilter
from .frames import EventFrame


class Subscriber:
    def __init__(
        self, event_filter: EventFilter, media: str, max_frames: int, max_bytes: int
    ) -> None:
        self.filter = event_filter
        self.media = media
        self.news = asyncio.Event()
        self.live = False  # whether the feeder feeds it
        self.since = 0  # the feeder's pass in which it came
        self.position = 0  # all up to here was told, or was not wanted
        self.over = False  # its job has ended: nothing comes after what is in the buffer
        self.status: JobStatus | None = None  # its job, when it had ended; None: it is gone
        self._fed_until = 0  # all up to here came into the buffer, or was not wanted
        self._last_own = 0  # the last event of its job, wanted or not
        self._sent_status: tuple[str, int] | None = None
        self._max_frames, self._max_bytes = max_frames, max_bytes
        self._buffer: deque[tuple[int | None, bytes]] = deque()
        self._bytes = 0

    def go_live(self, position: int, tick: int) -> None:
        """From here on the feeder feeds it."""
        self.live, self.since, self._fed_until = True, tick, position
        self.over = False

    def push(self, event: StoredEvent, frame: EventFrame) -> None:
        """From the feeder, in order."""
        if not self.live or event.position <= self._fed_until:
            return
        self._fed_until = self._last_own = event.position
        if self.filter.matches(event):
            self._put(event.position, frame.encoded(self.media))

    def set_status(self, status: JobStatus | None) -> None:
        """From the feeder: how its job stands, after all that was told before that."""
        if not self.live or self.over:
            return
        if status is None or status.final:
            self.over, self.status = True, status
            self.news.set()
        elif self.status_changed(status):
            self._put(None, frames.state_frame(status).encoded(self.media))

    def status_changed(self, status: JobStatus) -> bool:
        """Whether this is news."""
        before, self._sent_status = self._sent_status, (status.state, status.fence)
        return before != self._sent_status

    def advance(self, position: int) -> None:
        """From the feeder: there is nothing more up to here."""
        if self.live and position > self._fed_until:
            self._fed_until = position

    def fall_back(self) -> None:
        """It goes back to the store, from its position on."""
        self.live, self.over, self._sent_status = False, False, None
        self._buffer.clear()
        self._bytes = 0
        self.news.set()

    def take(self, max_bytes: int) -> bytes:
        """What has come, up to so many bytes (or one event)."""
        self.news.clear()
        parts, size = list[bytes](), 0
        while self._buffer and (not parts or size + len(self._buffer[0][1]) <= max_bytes):
            position, part = self._buffer.popleft()
            self._bytes -= len(part)
            if (
                position is None or position > self.position
            ):  # else it was found in the store before
                self.position = position or self.position
                parts.append(part)
                size += len(part)
        if not self._buffer and self.live and self.filter.job is None:
            self.position = max(self.position, self._fed_until)
        return b"".join(parts)

    def end_frame(self) -> bytes:
        """Its job's end. Its id goes by the job's last event, so that it is the same whoever tells
        it, and whatever was wanted."""
        position = max(self.position, self._last_own)
        return frames.end_frame(self.filter.job or "", self.status, position).encoded(self.media)

    @property
    def waiting(self) -> int:
        return len(self._buffer)

    def _put(self, position: int | None, part: bytes) -> None:
        self._buffer.append((position, part))
        self._bytes += len(part)
        self.news.set()
        if len(self._buffer) > self._max_frames or self._bytes > self._max_bytes:
            self.fall_back()
