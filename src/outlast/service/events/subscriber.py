"""One who follows: where it stands, and a bounded buffer that the feeder puts into.

The feeder never waits for anybody. Where a buffer is full, it is emptied, and its subscriber reads
from the store what it has missed, at its own pace, until it has caught up.
"""

from __future__ import annotations

import asyncio
from collections import deque

from ...ops.events import Standing, Told
from . import frames
from .frames import Frame
from .wanted import Wanted


class Subscriber:
    def __init__(self, wanted: Wanted, media: str, most: int, most_bytes: int) -> None:
        self.wanted = wanted
        self.media = media
        self.news = asyncio.Event()
        self.live = False  # whether the feeder feeds it
        self.since = 0  # the feeder's pass in which it came
        self.position = 0  # all up to here was told, or was not wanted
        self.over = False  # its job has ended: nothing comes after what is in the buffer
        self.stands: Standing | None = None  # its job, when it had ended; None: it is gone
        self._reach = 0  # all up to here came into the buffer, or was not wanted
        self._own = 0  # the last event of its job, wanted or not
        self._stood: tuple[str, int] | None = None
        self._most, self._most_bytes = most, most_bytes
        self._buffer: deque[tuple[int | None, bytes]] = deque()
        self._bytes = 0

    def go_live(self, reach: int, tick: int) -> None:
        """From here on the feeder feeds it."""
        self.live, self.since, self._reach = True, tick, reach
        self.over = False

    def give(self, told: Told, frame: Frame) -> None:
        """From the feeder, in order."""
        if not self.live or told.place <= self._reach:
            return
        self._reach = self._own = told.place
        if self.wanted.fits(told):
            self._put(told.place, frame.spelled(self.media))

    def stand(self, standing: Standing | None) -> None:
        """From the feeder: how its job stands, after all that was told before that."""
        if not self.live or self.over:
            return
        if standing is None or standing.final:
            self.over, self.stands = True, standing
            self.news.set()
        elif self.stood(standing):
            self._put(None, frames.state(standing).spelled(self.media))

    def stood(self, standing: Standing) -> bool:
        """Whether this is news."""
        before, self._stood = self._stood, (standing.state, standing.fence)
        return before != self._stood

    def passed(self, reach: int) -> None:
        """From the feeder: there is nothing more up to here."""
        if self.live and reach > self._reach:
            self._reach = reach

    def fall_back(self) -> None:
        """It goes back to the store, from its position on."""
        self.live, self.over, self._stood = False, False, None
        self._buffer.clear()
        self._bytes = 0
        self.news.set()

    def take(self, most_bytes: int) -> bytes:
        """What has come, up to so many bytes (or one event)."""
        self.news.clear()
        parts, size = list[bytes](), 0
        while self._buffer and (not parts or size + len(self._buffer[0][1]) <= most_bytes):
            place, part = self._buffer.popleft()
            self._bytes -= len(part)
            if place is None or place > self.position:  # else it was found in the store before
                self.position = place or self.position
                parts.append(part)
                size += len(part)
        if not self._buffer and self.live and self.wanted.job is None:
            self.position = max(self.position, self._reach)
        return b"".join(parts)

    def last_word(self) -> bytes:
        """Its job's end. Its id goes by the job's last event, so that it is the same whoever tells
        it, and whatever was wanted."""
        place = max(self.position, self._own)
        return frames.end(self.wanted.job or "", self.stands, place).spelled(self.media)

    @property
    def waiting(self) -> int:
        return len(self._buffer)

    def _put(self, place: int | None, part: bytes) -> None:
        self._buffer.append((place, part))
        self._bytes += len(part)
        self.news.set()
        if len(self._buffer) > self._most or self._bytes > self._most_bytes:
            self.fall_back()
