"""Statistics duty: count ten-second spans of the past, by any worker or server."""

from __future__ import annotations

import time

from ..ops import statistics
from ..ops.duties import DutyTally
from ..ops.statistics import LONG_SPAN_S, SPAN_S, Depths
from ..store import Store

SETTLE_S = 1.0  # seconds after its end by which nearly all that belongs to a span is committed
RECOUNT_AFTER_S = (
    60  # seconds after which a span is counted once more, for those who committed late
)
MAX_SPANS = 60  # spans; what happened before, while nobody lived to count, is left out
KEEP_S, KEEP_LONG_S = 86_400, 7 * 86_400  # seconds
COST_FACTOR = 50  # times as long as it took to count what there is, until that is done again


class StatsCollector:
    def __init__(self, store: Store) -> None:
        self.store = store
        self._depths_at = time.monotonic() + SPAN_S  # a start is no time to count what there is

    async def once(self) -> DutyTally:
        """One pass: spans not counted yet, and spans that may have changed since."""
        newest, now = await self.store.arun(statistics.newest_span)
        end = int(now - SETTLE_S) // SPAN_S * SPAN_S
        due = spans_due(newest, end)
        there = await self._depths() if due else None
        found = 0
        if due and newest is not None and newest + SPAN_S < due[0]:
            await self._fold_old(newest)
        for at in due:
            # The count of a span says that all before it is done: whoever dies between the two
            # leaves both to the next.
            await self._recount(at)
            found += await self.store.arun(statistics.count, at, there if at == due[-1] else None)
        return DutyTally(found=found, healed=found)

    async def _recount(self, at: int) -> None:
        await self.store.arun(statistics.count, at - RECOUNT_AFTER_S)
        # What a long span is made of has been counted twice by now.
        over = at - RECOUNT_AFTER_S + SPAN_S
        if over % LONG_SPAN_S == 0:
            await self.store.arun(statistics.fold, over - LONG_SPAN_S)
            await self.store.arun(statistics.prune_statistics, at - KEEP_S, at - KEEP_LONG_S)

    async def _fold_old(self, newest: int) -> None:
        """Nobody has counted for long: what came before is looked at once more, and folded."""
        last = range(newest - RECOUNT_AFTER_S + SPAN_S, newest + SPAN_S, SPAN_S)
        for at in last:
            await self.store.arun(statistics.count, at)
        for long in sorted({at // LONG_SPAN_S * LONG_SPAN_S for at in last}):
            await self.store.arun(statistics.fold, long)

    async def _depths(self) -> Depths | None:
        """Counting takes longer with more jobs, and is then done less often."""
        began = time.monotonic()
        if began < self._depths_at:
            return None
        there = await self.store.arun(statistics.depths)
        self._depths_at = began + COST_FACTOR * (time.monotonic() - began)
        return there


def spans_due(newest: int | None, end: int) -> list[int]:
    """The starts of ended spans that are not counted."""
    first = end - SPAN_S if newest is None else newest + SPAN_S
    return list(range(max(first, end - MAX_SPANS * SPAN_S), end, SPAN_S))
