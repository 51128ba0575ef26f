"""Metrics of the tables, cached: read on demand, at most every few seconds.

A scrape never waits long, however slow the database is; and the slower it is, the less often it is
read. The age of the snapshot is a metric of its own.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from dataclasses import dataclass

from ..cached import Cached, Snapshot
from ..model.errors import OutlastError
from ..ops.table_metrics import TableMetrics, read_table_metrics
from ..store import Store

log = logging.getLogger("outlast.metrics")

FRESH_FOR_S = 2.0
COST_FACTOR = 20  # reads take at most this fraction (1/n) of a connection's time
REFRESH_WAIT_S = 0.5  # seconds that a scrape waits for a new snapshot


@dataclass(slots=True)
class MeasuredTables(Snapshot):
    metrics: TableMetrics


class TableSnapshot:
    """The cache of table metrics, for one event loop."""

    def __init__(self, store: Store, fresh: float = FRESH_FOR_S) -> None:
        self._store = store
        self._fresh_for = fresh
        self._cached = Cached(self._read, fresh, COST_FACTOR)
        self._created_at = time.monotonic()
        self._retry_at = 0.0
        self.cost = 0.0  # duration of the last read; seconds
        self.failures = 0
        self.failing = False  # the last read failed

    @property
    def measured(self) -> TableMetrics | None:
        return None if self._cached.last is None else self._cached.last.metrics

    @property
    def age(self) -> float:
        """Before the first read, the age of this process."""
        last = self._cached.last
        return time.monotonic() - self._created_at if last is None else last.age

    async def latest(self, wait: float = REFRESH_WAIT_S) -> TableMetrics | None:
        """The metrics, read again if they are stale and the read is fast."""
        if time.monotonic() >= self._retry_at:
            with suppress(Exception):  # logged and counted
                await self._cached.latest_within(wait)
        return self.measured

    async def aclose(self) -> None:
        await self._cached.aclose()

    async def _read(self) -> MeasuredTables:
        began = time.monotonic()
        try:
            measured = MeasuredTables(await self._store.arun(read_table_metrics))
            self.failing = False
            return measured
        except Exception as error:
            self._failed(error)
            raise
        finally:
            self.cost = time.monotonic() - began
            if self.failing:
                pause = max(self._fresh_for, self.cost * COST_FACTOR)
                self._retry_at = time.monotonic() + pause

    def _failed(self, error: Exception) -> None:
        self.failures += 1
        if not isinstance(error, OutlastError):
            log.error("table metrics cannot be read: %s", error, exc_info=error)
        elif not self.failing:  # once; afterwards the age shows it
            log.warning("table metrics cannot be read: %s", error)
        self.failing = True
