"""Counts what happened, ten seconds at a time: a duty, done by any worker, or by a server."""

from __future__ import annotations

import time

from ..ops import statistics
from ..ops.duties import Tally
from ..ops.statistics import LONG_SPAN, SPAN, Depths
from ..store import Store

SETTLED = 1.0  # seconds after its end by which nearly all that belongs to a span is committed
AGAIN = 60  # seconds after which a span is counted once more, for those who committed late
MOST_AT_ONCE = 60  # spans; what happened before, while nobody lived to count, is left out
KEEP, KEEP_LONG = 86_400, 7 * 86_400  # seconds
SHARE = 50  # times as long as it took to count what there is, until that is done again


class Statistician:
    def __init__(self, store: Store) -> None:
        self.store = store
        self._depths_at = time.monotonic() + SPAN  # a start is no time to count what there is

    async def once(self) -> Tally:
        """One pass: what was not counted yet, and what may have changed since it was."""
        newest, now = await self.store.arun(statistics.standing)
        end = int(now - SETTLED) // SPAN * SPAN
        due = spans_due(newest, end)
        there = await self._depths() if due else None
        found = 0
        if due and newest is not None and newest + SPAN < due[0]:
            await self._close(newest)
        for at in due:
            # The count of a span says that all before it is done: whoever dies between the two
            # leaves both to the next.
            await self._look_back(at)
            found += await self.store.arun(statistics.count, at, there if at == due[-1] else None)
        return Tally(found=found, healed=found)

    async def _look_back(self, at: int) -> None:
        await self.store.arun(statistics.count, at - AGAIN)
        # What a long span is made of has been counted twice by now.
        over = at - AGAIN + SPAN
        if over % LONG_SPAN == 0:
            await self.store.arun(statistics.fold, over - LONG_SPAN)
            await self.store.arun(statistics.forget, at - KEEP, at - KEEP_LONG)

    async def _close(self, newest: int) -> None:
        """Nobody has counted for long: what came before is looked at once more, and folded."""
        last = range(newest - AGAIN + SPAN, newest + SPAN, SPAN)
        for at in last:
            await self.store.arun(statistics.count, at)
        for long in sorted({at // LONG_SPAN * LONG_SPAN for at in last}):
            await self.store.arun(statistics.fold, long)

    async def _depths(self) -> Depths | None:
        """Counting takes as long as there is much to count; then it is done less often."""
        began = time.monotonic()
        if began < self._depths_at:
            return None
        there = await self.store.arun(statistics.depths)
        self._depths_at = began + SHARE * (time.monotonic() - began)
        return there


def spans_due(newest: int | None, end: int) -> list[int]:
    """Where those spans begin that are over and were not counted."""
    first = end - SPAN if newest is None else newest + SPAN
    return list(range(max(first, end - MOST_AT_ONCE * SPAN), end, SPAN))
