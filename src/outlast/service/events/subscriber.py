"""A subscriber: its position, and a bounded buffer that the broadcaster fills.

The broadcaster never waits. A full buffer is emptied, and its subscriber reads the missed events
from the store, at its own pace, until it has caught up.
"""

from __future__ import annotations

import asyncio
from collections import deque

from ...ops.event_filter import EventFilter
from ...ops.events import JobStatus, StoredEvent
from . import frames
from .frames import EventFrame


class Subscriber:
    def __init__(
        self, event_filter: EventFilter, media: str, max_frames: int, max_bytes: int
    ) -> None:
        self.filter = event_filter
        self.media = media
        self.changed = asyncio.Event()
        self.live = False  # whether the broadcaster delivers to it
        self.since = 0  # the broadcaster's pass in which it subscribed
        self.position = 0  # all events up to here were sent, or filtered out
        self.over = False  # its job has ended: nothing follows after the buffer
        self.status: JobStatus | None = None  # its job, once ended; None: deleted
        self._fed_until = 0  # all events up to here were buffered, or filtered out
        self._last_own = 0  # the last event of its job, even if filtered out
        self._sent_status: tuple[str, int] | None = None
        self._max_frames, self._max_bytes = max_frames, max_bytes
        self._buffer: deque[tuple[int | None, bytes]] = deque()
        self._bytes = 0

    def go_live(self, position: int, tick: int) -> None:
        """Start to receive events from the broadcaster, after this position."""
        self.live, self.since, self._fed_until = True, tick, position
        self.over = False

    def push(self, event: StoredEvent, frame: EventFrame) -> None:
        """Called by the broadcaster: buffer an event, in order."""
        if not self.live or event.position <= self._fed_until:
            return
        self._fed_until = self._last_own = event.position
        if self.filter.matches(event):
            self._put(event.position, frame.encoded(self.media))

    def set_status(self, status: JobStatus | None) -> None:
        """Called by the broadcaster: the state of its job, after all events before it."""
        if not self.live or self.over:
            return
        if status is None or status.final:
            self.over, self.status = True, status
            self.changed.set()
        elif self.status_changed(status):
            self._put(None, frames.state_frame(status).encoded(self.media))

    def status_changed(self, status: JobStatus) -> bool:
        """Whether this status is new."""
        before, self._sent_status = self._sent_status, (status.state, status.fence)
        return before != self._sent_status

    def advance(self, position: int) -> None:
        """Called by the broadcaster: there are no more events up to here."""
        if self.live and position > self._fed_until:
            self._fed_until = position

    def fall_back(self) -> None:
        """Return to reading the store, from its position on."""
        self.live, self.over, self._sent_status = False, False, None
        self._buffer.clear()
        self._bytes = 0
        self.changed.set()

    def take(self, max_bytes: int) -> bytes:
        """Buffered events, up to this many bytes (or one event)."""
        self.changed.clear()
        parts, size = list[bytes](), 0
        while self._buffer and (not parts or size + len(self._buffer[0][1]) <= max_bytes):
            position, part = self._buffer.popleft()
            self._bytes -= len(part)
            if position is None or position > self.position:  # otherwise read from the store before
                self.position = position or self.position
                parts.append(part)
                size += len(part)
        if not self._buffer and self.live and self.filter.job is None:
            self.position = max(self.position, self._fed_until)
        return b"".join(parts)

    def end_frame(self) -> bytes:
        """The end of its job. Its id derives from the job's last event, so that it is the same for
        every reader and filter."""
        position = max(self.position, self._last_own)
        return frames.end_frame(self.filter.job or "", self.status, position).encoded(self.media)

    @property
    def waiting(self) -> int:
        return len(self._buffer)

    def _put(self, position: int | None, part: bytes) -> None:
        self._buffer.append((position, part))
        self._bytes += len(part)
        self.changed.set()
        if len(self._buffer) > self._max_frames or self._bytes > self._max_bytes:
            self.fall_back()
