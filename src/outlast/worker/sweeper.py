"""Sweeper: pages through rows to heal; rows that cannot be healed are skipped and counted."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from ..ops.operation import Op
from ..ops.reclaim import ReclaimResult, reclaim
from ..store import Store
from .row_errors import RowSuspicion

log = logging.getLogger("outlast.worker")

BATCH_SIZE = 500
MAX_FAILURES = 200  # in one pass; the next one continues there
SweepPage = Callable[[int, int], Op[ReclaimResult]]  # one page: limit, and rows to skip
RETRY_AFTER_S = 10.0  # seconds until jobs that cannot be healed are tried again


class Sweeper:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._skipped = 0  # lost jobs that cannot be reclaimed, the longest lost ones
        self._retry_from = 0  # position among these
        self._retry_at = 0.0
        self._suspicion = RowSuspicion()

    async def sweep(
        self, sweep_page: SweepPage, batch: int = BATCH_SIZE, skip: int = 0
    ) -> ReclaimResult:
        """Page through the rows that a statement finds. A failing batch is halved until the faulty
        row is found, which is counted and skipped."""
        total, size = ReclaimResult(), batch
        while total.failed < MAX_FAILURES:
            try:
                result = await self._store.arun(sweep_page, size, skip + total.failed)
            except Exception as error:
                if not self._suspicion.blames_row(error):
                    raise
                if size == 1:
                    total.found += 1
                    total.failed += 1
                    level = logging.ERROR if total.failed == 1 else logging.DEBUG
                    log.log(level, "a job cannot be healed: %s", error)
                size = max(1, size // 2)
                continue
            self._suspicion.clear()
            total.add(result)
            if result.found < size:
                break
            size = min(batch, size * 2)
        return total

    async def sweep_lost(
        self, batch: int = BATCH_SIZE, sweep_page: SweepPage = reclaim
    ) -> ReclaimResult:
        """Page through all lost claims. Claims that cannot be reclaimed come first, being the
        longest lost: they are skipped, so that they delay no other, and tried again later."""
        result = await self.sweep(sweep_page, batch, self._skipped)
        if self._skipped and time.monotonic() >= self._retry_at:
            result.add(await self._retry(batch, sweep_page))
        elif result.failed:
            self._skipped += result.failed
            self._retry_at = time.monotonic() + RETRY_AFTER_S
        return result

    async def _retry(self, batch: int, sweep_page: SweepPage) -> ReclaimResult:
        """Try skipped claims again. If none of them fails, they were repaired or removed, and the
        next pass skips nothing."""
        again = await self.sweep(sweep_page, batch, self._retry_from)
        self._retry_at = time.monotonic() + RETRY_AFTER_S
        self._retry_from += again.failed
        self._skipped = max(0, self._skipped - again.healed)
        if again.failed == 0:
            self._skipped = self._retry_from = 0
        elif self._retry_from >= self._skipped:
            self._retry_from = 0
        return again
