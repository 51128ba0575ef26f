"""Rotation of queues: the order in which they are claimed from, and their back-offs.

    found by a poll or notified ─▶ rotation ─▶ claim ─┬─ full: to the end of the rotation
                                       ▲              ├─ partial: out, until polled or notified
                                       │              └─ empty: backs off, longer each time
                                       └─ its back-off ends ◀─┘

Every step costs O(1), or O(log n) for a back-off, whatever the number of queues.
"""

from __future__ import annotations

import heapq
import math
import random
import time
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class QueueBackoff:
    """The back-off of a queue: no claims until it ends."""

    until: float
    ignores_notifications: bool  # a notification does not end it
    empty_claims: int = 0  # in a row
    was_found: bool = False  # found meanwhile: joins the rotation when the back-off ends


class QueueRotation:
    def __init__(self, first_backoff: float, longest_backoff: float) -> None:
        self._first_backoff = first_backoff
        self._longest_backoff = longest_backoff
        self._order: OrderedDict[str, None] = OrderedDict()
        self._backoffs: dict[str, QueueBackoff] = {}  # with ended ones, for their counts
        self._ends: list[tuple[float, str]] = []  # a heap: ends of back-offs of queues with jobs

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[str]:
        return iter(self._order)

    def __contains__(self, queue: object) -> bool:
        return queue in self._order

    def found(self, queue: str) -> None:
        """A poll found jobs in this queue."""
        backoff = self._backoffs.get(queue)
        if backoff is None or backoff.until <= time.monotonic():
            self._join(queue, backoff)
        elif not backoff.was_found:
            backoff.was_found = True
            heapq.heappush(self._ends, (backoff.until, queue))

    def notified(self, queue: str) -> None:
        """A notification names this queue: its back-off ends unless it ignores notifications."""
        backoff = self._backoffs.get(queue)
        if backoff is not None and not backoff.ignores_notifications:
            backoff.until = 0.0
        self.found(queue)

    def notifications_missed(self) -> None:
        """End all back-offs that a missed notification might have ended."""
        for backoff in self._backoffs.values():
            if not backoff.ignores_notifications:
                backoff.until = 0.0

    def next(self) -> str | None:
        """Remove and return the first queue."""
        self._end_backoffs()
        return self._order.popitem(last=False)[0] if self._order else None

    def take(self, queue: str) -> bool:
        """Remove a queue, whatever its position; returns whether it was in the rotation."""
        if queue not in self._order:
            return False
        del self._order[queue]
        return True

    def return_to_front(self, queues: Sequence[str]) -> None:
        """Return queues that were removed but not claimed from to the front, in their order."""
        for queue in reversed(queues):
            self._order[queue] = None
            self._order.move_to_end(queue, last=False)

    def until_backoff_end(self) -> float:
        """Seconds until the first back-off of a queue with jobs ends."""
        self._end_backoffs()
        return max(0.0, self._ends[0][0] - time.monotonic()) if self._ends else math.inf

    def had_jobs(self, queue: str) -> None:
        """Reset the back-off of a queue: a claim returned jobs."""
        self._backoffs.pop(queue, None)

    def was_empty(self, queue: str, longest: float = math.inf) -> None:
        """Back off after an empty claim, unless the queue was notified meanwhile."""
        backoff = self._backoffs.setdefault(queue, QueueBackoff(0.0, ignores_notifications=False))
        backoff.empty_claims += 1
        if queue not in self._order:
            doubled = self._first_backoff * 2.0 ** min(backoff.empty_claims - 1, 40)
            seconds = min(self._longest_backoff, doubled) * random.uniform(0.75, 1.0)
            seconds = min(seconds, max(self._first_backoff, longest))
            self._begin(queue, backoff, seconds, ignores_notifications=False)

    def back_off(self, queue: str, seconds: float) -> None:
        """Back off for so long, ignoring notifications; then rejoin, found by a poll or not."""
        self._order.pop(queue, None)
        backoff = self._backoffs.setdefault(queue, QueueBackoff(0.0, ignores_notifications=True))
        self._begin(queue, backoff, seconds, ignores_notifications=True)
        self.found(queue)

    def _begin(
        self, queue: str, backoff: QueueBackoff, seconds: float, *, ignores_notifications: bool
    ) -> None:
        backoff.until, backoff.ignores_notifications, backoff.was_found = (
            time.monotonic() + seconds,
            ignores_notifications,
            False,
        )

    def _end_backoffs(self) -> None:
        """Return queues whose back-off is over; drop outdated heap entries."""
        now = time.monotonic()
        while self._ends:
            until, queue = self._ends[0]
            backoff = self._backoffs.get(queue)
            valid = backoff is not None and backoff.was_found and backoff.until == until
            if valid and until > now:
                return
            heapq.heappop(self._ends)
            if valid:
                self._join(queue, backoff)

    def _join(self, queue: str, backoff: QueueBackoff | None) -> None:
        if backoff is not None:
            backoff.was_found = False
        self._order.setdefault(queue)

    def forget_all_but(self, seen: Collection[str]) -> None:
        """Drop ended back-offs of queues that a poll no longer finds, to bound the memory."""
        now = time.monotonic()
        for queue in [
            q for q, backoff in self._backoffs.items() if backoff.until <= now and q not in seen
        ]:
            del self._backoffs[queue]
