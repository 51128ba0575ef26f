"""Statistics duty: count past ten-second spans, on any worker or server."""

from __future__ import annotations

import time

from ..ops import statistics
from ..ops.duties import DutyTally
from ..ops.statistics import LONG_SPAN_S, SPAN_S, Depths
from ..store import Store

SETTLE_S = 1.0  # seconds after the end of a span until nearly all its transactions are committed
RECOUNT_AFTER_S = 60  # seconds until a span is counted again, with late commits
MAX_SPANS = 60  # spans counted in one pass; older ones that no process counted are left out
KEEP_S, KEEP_LONG_S = 86_400, 7 * 86_400  # seconds
COST_FACTOR = 50  # pause until depths are counted again, as a multiple of the duration


class StatsCollector:
    def __init__(self, store: Store) -> None:
        self.store = store
        self._depths_at = time.monotonic() + SPAN_S  # not during the start

    async def once(self) -> DutyTally:
        """Count spans that are not counted yet, and recount spans that may have changed."""
        newest, now = await self.store.arun(statistics.newest_span)
        end = int(now - SETTLE_S) // SPAN_S * SPAN_S
        due = spans_due(newest, end)
        depths = await self._depths() if due else None
        found = 0
        if due and newest is not None and newest + SPAN_S < due[0]:
            await self._fold_old(newest)
        for at in due:
            # The count of a span marks all earlier work as done, so it comes last: after a crash
            # in between, the next worker repeats both.
            await self._recount(at)
            found += await self.store.arun(statistics.count, at, depths if at == due[-1] else None)
        return DutyTally(found=found, healed=found)

    async def _recount(self, at: int) -> None:
        await self.store.arun(statistics.count, at - RECOUNT_AFTER_S)
        # All parts of the long span have been counted twice by now.
        over = at - RECOUNT_AFTER_S + SPAN_S
        if over % LONG_SPAN_S == 0:
            await self.store.arun(statistics.fold, over - LONG_SPAN_S)
            await self.store.arun(statistics.prune_statistics, at - KEEP_S, at - KEEP_LONG_S)

    async def _fold_old(self, newest: int) -> None:
        """After a long gap, recount and fold the last spans before it."""
        last = range(newest - RECOUNT_AFTER_S + SPAN_S, newest + SPAN_S, SPAN_S)
        for at in last:
            await self.store.arun(statistics.count, at)
        for long in sorted({at // LONG_SPAN_S * LONG_SPAN_S for at in last}):
            await self.store.arun(statistics.fold, long)

    async def _depths(self) -> Depths | None:
        """The depths of queues, or None: with more jobs, counting takes longer and is done less
        often."""
        began = time.monotonic()
        if began < self._depths_at:
            return None
        depths = await self.store.arun(statistics.depths)
        self._depths_at = began + COST_FACTOR * (time.monotonic() - began)
        return depths


def spans_due(newest: int | None, end: int) -> list[int]:
    """The starts of ended spans that are not counted."""
    first = end - SPAN_S if newest is None else newest + SPAN_S
    return list(range(max(first, end - MAX_SPANS * SPAN_S), end, SPAN_S))
