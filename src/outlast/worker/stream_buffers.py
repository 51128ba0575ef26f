"""Stream buffers: output that handlers have streamed and that is not stored yet.

Chunks gather until the write interval of the job is over; consecutive texts are joined. This limits
the write rate of a job, however often its handler streams. The first chunk after a pause is written
at once.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from ..model.claim import Claim, ClaimKey
from ..model.stream import MAX_ROW_BYTES

WRITE_INTERVAL_S = 0.05  # seconds between two writes of one job


class StreamBuffer:
    """The output of one claim. Output beyond `limit` bytes is dropped: the database stores a marker
    in place of the first row that exceeds it."""

    def __init__(self, claim: Claim, limit: int) -> None:
        self.claim = claim
        self.next_at = 0.0  # monotonic: earliest next write
        self.written = False  # whether a row was taken
        self._limit = limit
        self._accepted = 0
        self._items: list[list[str]] = []  # JSON texts; consecutive strings belong together

    def __bool__(self) -> bool:
        return bool(self._items)

    def add(self, item: str) -> None:
        if self._accepted > self._limit:
            return
        self._accepted += len(item)
        if item.startswith('"') and self._items and self._items[-1][0].startswith('"'):
            self._items[-1].append(item)
        else:
            self._items.append([item])

    def take(self) -> tuple[str, bool]:
        """The next row as a JSON array, and whether it is the claim's first."""
        row, size = list[str](), 0
        while self._items:
            parts = self._items[0]
            taken, size = _fitting(parts, size, bool(row))
            if not taken:
                break
            row.append(_joined(taken))
            del parts[: len(taken)]
            if parts:
                break
            del self._items[0]
        first, self.written = not self.written, True
        return f"[{','.join(row)}]", first


def _fitting(parts: list[str], size: int, begun: bool) -> tuple[list[str], int]:
    """The parts that fit into the row; at least one, if it is empty."""
    taken: list[str] = []
    for part in parts:
        if (begun or taken) and size + len(part) > MAX_ROW_BYTES:
            break
        taken.append(part)
        size += len(part)
    return taken, size


def _joined(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else '"' + "".join(part[1:-1] for part in parts) + '"'


class StreamBuffers:
    """The buffers of all claims in flight. Chunks come from any thread. `seal` receives the rows
    one at a time, in order: the claim, the row, and whether it is the claim's first."""

    def __init__(
        self,
        limit: int,
        holds: Callable[[Claim], bool],
        seal: Callable[[Claim, str, bool], None],
    ) -> None:
        self._limit = limit
        self._holds = holds
        self._seal = seal
        self._lock = threading.Lock()
        self._buffers: dict[ClaimKey, StreamBuffer] = {}

    def add(self, claim: Claim, item: str) -> bool:
        """Add a chunk; returns whether to wake the writer, as no chunk of this claim waited."""
        with self._lock:
            buffer = self._buffers.get(claim.claim_key)
            if buffer is None:
                buffer = self._buffers[claim.claim_key] = StreamBuffer(claim, self._limit)
            waiting = bool(buffer)
            buffer.add(item)
            return not waiting

    def due_in(self) -> float:
        """Seconds until there is something to write; infinite if no chunk waits."""
        with self._lock:
            due = min((b.next_at for b in self._buffers.values() if b), default=math.inf)
        return max(0.0, due - time.monotonic())

    def seal_due(self) -> None:
        """Make one row of each claim that may write now. Claims that were lost are dropped."""
        now = time.monotonic()
        with self._lock:
            for key in [key for key, b in self._buffers.items() if not self._holds(b.claim)]:
                del self._buffers[key]
            for buffer in self._buffers.values():
                if buffer and buffer.next_at <= now:
                    self._seal(buffer.claim, *buffer.take())
                    buffer.next_at = now + WRITE_INTERVAL_S

    def seal_all(self, claim: Claim, *, last: bool = False) -> None:
        """Make rows of everything that a claim has streamed; `last`: it has ended."""
        if not self._buffers:  # no job streams: a handler's own output would be there by now
            return
        with self._lock:
            buffer = self._buffers.get(claim.claim_key)
            while buffer:
                self._seal(claim, *buffer.take())
            if last:
                self._buffers.pop(claim.claim_key, None)
