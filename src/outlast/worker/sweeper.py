"""Sweeps that no single row can stop: who cannot be healed is found, stepped over, and counted."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from ..ops.reclaim import Swept, reclaim
from ..ops.statement import Op
from ..store import Store
from .row_faults import Suspicion

log = logging.getLogger("outlast.worker")

BATCH = 500
MOST_FAILURES = 200  # in one pass; the next one goes on from there
Once = Callable[[int, int], Op[Swept]]  # one page: how many, and how many to step over
SET_ASIDE = 10.0  # seconds after which jobs that cannot be healed are tried again


class Sweeper:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._bad = 0  # lost jobs, the longest lost ones, that cannot be taken back
        self._retry_from = 0  # among these
        self._retry_at = 0.0
        self._suspicion = Suspicion()

    async def through(self, once: Once, batch: int = BATCH, skip: int = 0) -> Swept:
        """Page through what a statement finds. A batch that fails is halved until the row is found
        that is to blame; it is counted, and stepped over."""
        total, size = Swept(), batch
        while total.failed < MOST_FAILURES:
            try:
                swept = await self._store.arun(once, size, skip + total.failed)
            except Exception as error:
                if not self._suspicion.falls_on_a_row(error):
                    raise
                if size == 1:
                    total.found += 1
                    total.failed += 1
                    level = logging.ERROR if total.failed == 1 else logging.DEBUG
                    log.log(level, "a job cannot be healed: %s", error)
                size = max(1, size // 2)
                continue
            self._suspicion.lifted()
            total.add(swept)
            if swept.found < size:
                break
            size = min(batch, size * 2)
        return total

    async def lost(self, batch: int = BATCH, once: Once = reclaim) -> Swept:
        """Page through all lost claims. Those that cannot be taken back come first, being the
        longest lost: they are stepped over, so that they delay nobody, and tried again later."""
        swept = await self.through(once, batch, self._bad)
        if self._bad and time.monotonic() >= self._retry_at:
            swept.add(await self._retry(batch, once))
        elif swept.failed:
            self._bad += swept.failed
            self._retry_at = time.monotonic() + SET_ASIDE
        return swept

    async def _retry(self, batch: int, once: Once) -> Swept:
        """Some of those that could not be taken back. If all is well where they were, somebody has
        mended or removed them, and the next pass begins at the beginning."""
        again = await self.through(once, batch, self._retry_from)
        self._retry_at = time.monotonic() + SET_ASIDE
        self._retry_from += again.failed
        self._bad = max(0, self._bad - again.healed)
        if again.failed == 0:
            self._bad = self._retry_from = 0
        elif self._retry_from >= self._bad:
            self._retry_from = 0
        return again
