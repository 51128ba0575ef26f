"""Turn order of queues: a line of those to ask next, and those that rest.

    found by a look, named by news ─▶ line ─▶ asked ─┬─ a full batch: to the end of the line
                                       ▲             ├─ fewer: forgotten until a look or news
                                       │             └─ none: rests, longer each time
                                       └─ its rest is over ◀─┘

Every step costs O(1), or O(log n) for a rest, whatever the number of queues.
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
class QueueRest:
    """A queue that is not asked for a while."""

    until: float
    ignores_news: bool  # news do not end it
    empty_polls: int = 0  # times in a row
    was_found: bool = False  # named meanwhile: joins the line when the rest is over


class QueueRotation:
    def __init__(self, first_rest: float, longest_rest: float) -> None:
        self._first_rest = first_rest
        self._longest_rest = longest_rest
        self._order: OrderedDict[str, None] = OrderedDict()
        self._rests: dict[str, QueueRest] = {}  # those over are kept for their count
        self._ends: list[tuple[float, str]] = []  # a heap: when rests end whose queue was found

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[str]:
        return iter(self._order)

    def __contains__(self, queue: object) -> bool:
        return queue in self._order

    def found(self, queue: str) -> None:
        """A look found something in it."""
        rest = self._rests.get(queue)
        if rest is None or rest.until <= time.monotonic():
            self._join(queue, rest)
        elif not rest.was_found:
            rest.was_found = True
            heapq.heappush(self._ends, (rest.until, queue))

    def notified(self, queue: str) -> None:
        """News name it: a rest is over, unless it is deaf."""
        rest = self._rests.get(queue)
        if rest is not None and not rest.ignores_news:
            rest.until = 0.0
        self.found(queue)

    def news_missed(self) -> None:
        """Of any queue: a rest that news would have ended is over."""
        for rest in self._rests.values():
            if not rest.ignores_news:
                rest.until = 0.0

    def next(self) -> str | None:
        """Take the first queue out of the line."""
        self._end_rests()
        return self._order.popitem(last=False)[0] if self._order else None

    def take(self, queue: str) -> bool:
        """Take a queue out of the line, wherever it stands; False: it is not in line."""
        if queue not in self._order:
            return False
        del self._order[queue]
        return True

    def put_back(self, queues: Sequence[str]) -> None:
        """They were taken out and not asked: they are first again, in their order."""
        for queue in reversed(queues):
            self._order[queue] = None
            self._order.move_to_end(queue, last=False)

    def until_rested(self) -> float:
        """Seconds until a queue joins the line by itself."""
        self._end_rests()
        return max(0.0, self._ends[0][0] - time.monotonic()) if self._ends else math.inf

    def had_jobs(self, queue: str) -> None:
        """It had jobs: the next rest is a short one again."""
        self._rests.pop(queue, None)

    def was_empty(self, queue: str, longest: float = math.inf) -> None:
        """It rests, unless there were news of it meanwhile."""
        rest = self._rests.setdefault(queue, QueueRest(0.0, ignores_news=False))
        rest.empty_polls += 1
        if queue not in self._order:
            doubled = self._first_rest * 2.0 ** min(rest.empty_polls - 1, 40)
            seconds = min(self._longest_rest, doubled) * random.uniform(0.75, 1.0)
            seconds = min(seconds, max(self._first_rest, longest))
            self._begin(queue, rest, seconds, ignores_news=False)

    def rest(self, queue: str, seconds: float) -> None:
        """It is not asked for so long, whatever the news; then it is, found or not."""
        self._order.pop(queue, None)
        rest = self._rests.setdefault(queue, QueueRest(0.0, ignores_news=True))
        self._begin(queue, rest, seconds, ignores_news=True)
        self.found(queue)

    def _begin(self, queue: str, rest: QueueRest, seconds: float, *, ignores_news: bool) -> None:
        rest.until, rest.ignores_news, rest.was_found = (
            time.monotonic() + seconds,
            ignores_news,
            False,
        )

    def _end_rests(self) -> None:
        """Entries of the heap that no longer hold (the rest was ended, or began anew) go, too."""
        now = time.monotonic()
        while self._ends:
            until, queue = self._ends[0]
            rest = self._rests.get(queue)
            holds = rest is not None and rest.was_found and rest.until == until
            if holds and until > now:
                return
            heapq.heappop(self._ends)
            if holds:
                self._join(queue, rest)

    def _join(self, queue: str, rest: QueueRest | None) -> None:
        if rest is not None:
            rest.was_found = False
        self._order.setdefault(queue)

    def forget_all_but(self, seen: Collection[str]) -> None:
        """Names come and go: of those that a look no longer finds, nothing is kept."""
        now = time.monotonic()
        for queue in [q for q, rest in self._rests.items() if rest.until <= now and q not in seen]:
            del self._rests[queue]
