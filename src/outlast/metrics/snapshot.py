"""What is measured in the tables: asked for when somebody wants to know, at most every few seconds,
and kept.

    asked ──┬── fresh ──────────────────────────── the one that is kept
            └── old ── measuring, for a moment ─┬─ the new one
                                                └─ the old one: the age says how old

Who asks never waits for long, however slow the database is; and the slower it is, the less often
it is asked. A new snapshot takes the old one's place as a whole.
"""

from __future__ import annotations

import asyncio
import logging
import time

from ..model.errors import OutlastError
from ..ops.table_metrics import TableMetrics, read_table_metrics
from ..store import Store

log = logging.getLogger("outlast.metrics")

FRESH_FOR_S = 2.0  # seconds for which a snapshot is as good as a new one
COST_FACTOR = 20  # measuring takes at most one part in so many of a connection's time
REFRESH_WAIT_S = 0.5  # seconds that one who asks waits for a new one


class TableSnapshot:
    """For one event loop: all that use it ask there."""

    def __init__(self, store: Store, fresh: float = FRESH_FOR_S) -> None:
        self._store = store
        self._fresh_for = fresh
        self._taken_at = time.monotonic()  # if never, its age is that of this process
        self._next_refresh_at = 0.0
        self._refreshing: asyncio.Task[None] | None = None
        self.measured: TableMetrics | None = None
        self.cost = 0.0  # seconds that the last one took
        self.failures = 0
        self.failing = False  # the last try failed

    @property
    def age(self) -> float:
        return time.monotonic() - self._taken_at

    async def latest(self, wait: float = REFRESH_WAIT_S) -> TableMetrics | None:
        """The one that is kept, made anew if it is old and that does not take long."""
        if self._refreshing is None and time.monotonic() >= self._next_refresh_at:
            self._refreshing = asyncio.create_task(self._refresh())
            self._refreshing.add_done_callback(self._done)
        if self._refreshing is not None:
            await asyncio.wait({self._refreshing}, timeout=wait)
        return self.measured

    async def aclose(self) -> None:
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.wait({self._refreshing})

    def _done(self, measuring: asyncio.Task[None]) -> None:
        self._refreshing = None
        if not measuring.cancelled() and (error := measuring.exception()):
            log.error("the tables cannot be measured: %s", error, exc_info=error)

    async def _refresh(self) -> None:
        began = time.monotonic()
        try:
            measured = await self._store.arun(read_table_metrics)
        except OutlastError as error:
            self._failed(error)
        else:
            self.measured, self._taken_at, self.failing = measured, time.monotonic(), False
        finally:
            self.cost = time.monotonic() - began
            self._next_refresh_at = time.monotonic() + max(self._fresh_for, self.cost * COST_FACTOR)

    def _failed(self, error: OutlastError) -> None:
        self.failures += 1
        if not self.failing:  # once; the age tells the rest
            log.warning("the tables cannot be measured: %s", error)
        self.failing = True
