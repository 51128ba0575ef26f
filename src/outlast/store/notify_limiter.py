"""Rate limit of notifications. NOTIFY serialises commits, so a busy process must not send one per
job.

The first notification of a queue is sent at once, the next at most every 10 ms: a worker that was
just notified polls again within that time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable


class NotifyLimiter:
    def __init__(self, every: float = 0.01, clock: Callable[[], float] = time.monotonic) -> None:
        self.every = every
        self._clock = clock
        self._last: dict[str, float] = {}

    def due(self, queues: Iterable[str]) -> list[str]:
        """The queues whose workers should be notified now."""
        now = self._clock()
        due = [queue for queue in queues if now - self._last.get(queue, -1e9) >= self.every]
        for queue in due:
            self._last[queue] = now
        if len(self._last) > 10_000:
            self._last.clear()
        return due
