"""Rate limit of notifications. NOTIFY serialises commits, so a busy process must not send one per
job.

The first notification of a queue is sent at once, the next at most every 10 ms: a worker that was
just notified polls again within that time. After a pause it is part of the statement that inserts
the job, which saves a round trip; not while the process is busy, since the commits of all
processes that notify wait for each other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

QUIET_S = 0.1  # seconds


class NotifyLimiter:
    def __init__(self, every: float = 0.01, clock: Callable[[], float] = time.monotonic) -> None:
        self.every = every
        self._clock = clock
        self._last: dict[str, float] = {}

    def is_quiet(self, queue: str) -> bool:
        """Whether no notification was sent for a while. If so, the caller calls `sent` next."""
        return self._clock() - self._last.get(queue, -1e9) >= QUIET_S

    def sent(self, queue: str) -> None:
        self._last[queue] = self._clock()

    def due(self, queues: Iterable[str]) -> list[str]:
        """The queues whose workers should be notified now."""
        now = self._clock()
        due = [queue for queue in queues if now - self._last.get(queue, -1e9) >= self.every]
        for queue in due:
            self._last[queue] = now
        if len(self._last) > 10_000:
            self._last.clear()
        return due
