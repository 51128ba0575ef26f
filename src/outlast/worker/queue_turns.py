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
class Rest:
    """A queue that is not asked for a while."""

    until: float
    deaf: bool  # news do not end it
    asked_in_vain: int = 0  # times in a row
    found: bool = False  # named meanwhile: joins the line when the rest is over


class QueueTurns:
    def __init__(self, first_rest: float, longest_rest: float) -> None:
        self._first = first_rest
        self._longest = longest_rest
        self._line: OrderedDict[str, None] = OrderedDict()
        self._rests: dict[str, Rest] = {}  # those over are kept for their count
        self._ends: list[tuple[float, str]] = []  # a heap: when rests end whose queue was found

    def __len__(self) -> int:
        return len(self._line)

    def __iter__(self) -> Iterator[str]:
        return iter(self._line)

    def found(self, queue: str) -> None:
        """A look found something in it."""
        rest = self._rests.get(queue)
        if rest is None or rest.until <= time.monotonic():
            self._join(queue, rest)
        elif not rest.found:
            rest.found = True
            heapq.heappush(self._ends, (rest.until, queue))

    def heard(self, queue: str) -> None:
        """News name it: a rest is over, unless it is deaf."""
        rest = self._rests.get(queue)
        if rest is not None and not rest.deaf:
            rest.until = 0.0
        self.found(queue)

    def next(self) -> str | None:
        """Take the first queue out of the line."""
        self._end_rests()
        return self._line.popitem(last=False)[0] if self._line else None

    def put_back(self, queues: Sequence[str]) -> None:
        """They were taken out and not asked: they are first again, in their order."""
        for queue in reversed(queues):
            self._line[queue] = None
            self._line.move_to_end(queue, last=False)

    def until_rested(self) -> float:
        """Seconds until a queue joins the line by itself."""
        self._end_rests()
        return max(0.0, self._ends[0][0] - time.monotonic()) if self._ends else math.inf

    def gave(self, queue: str) -> None:
        """It had jobs: the next rest is a short one again."""
        self._rests.pop(queue, None)

    def gave_nothing(self, queue: str) -> None:
        """It rests, unless there were news of it meanwhile."""
        rest = self._rests.setdefault(queue, Rest(0.0, deaf=False))
        rest.asked_in_vain += 1
        if queue not in self._line:
            doubled = self._first * 2.0 ** min(rest.asked_in_vain - 1, 40)
            seconds = min(self._longest, doubled) * random.uniform(0.75, 1.0)
            self._begin(queue, rest, seconds, deaf=False)

    def rest(self, queue: str, seconds: float) -> None:
        """It is not asked for so long, whatever the news; then it is, found or not."""
        self._line.pop(queue, None)
        rest = self._rests.setdefault(queue, Rest(0.0, deaf=True))
        self._begin(queue, rest, seconds, deaf=True)
        self.found(queue)

    def _begin(self, queue: str, rest: Rest, seconds: float, *, deaf: bool) -> None:
        rest.until, rest.deaf, rest.found = time.monotonic() + seconds, deaf, False

    def _end_rests(self) -> None:
        """Entries of the heap that no longer hold (the rest was ended, or began anew) go, too."""
        now = time.monotonic()
        while self._ends:
            until, queue = self._ends[0]
            rest = self._rests.get(queue)
            holds = rest is not None and rest.found and rest.until == until
            if holds and until > now:
                return
            heapq.heappop(self._ends)
            if holds:
                self._join(queue, rest)

    def _join(self, queue: str, rest: Rest | None) -> None:
        if rest is not None:
            rest.found = False
        self._line.setdefault(queue)

    def forget_all_but(self, seen: Collection[str]) -> None:
        """Names come and go: of those that a look no longer finds, nothing is kept."""
        now = time.monotonic()
        for queue in [q for q, rest in self._rests.items() if rest.until <= now and q not in seen]:
            del self._rests[queue]
