"""The snapshot of live pages, read once for all viewers.

A snapshot is fresh for a few seconds. It is refreshed periodically while there are viewers, else on
demand: the first viewer after a pause gets the last snapshot, with its age, unless a new one is
ready within a moment. One statement reads it, and every ten seconds another one reads the new
statistics.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from markupsafe import Markup

from ...cached import Cached, Snapshot
from ...model.errors import OutlastError
from ...ops.live_stats import LiveStats, live_stats
from .histories import Histories
from .ranges import HOUR, Steps

if TYPE_CHECKING:
    from ..components import Service

log = logging.getLogger("outlast.service")

REFRESH_INTERVAL_S = 4.0


@dataclass(slots=True)
class LiveSnapshot(Snapshot):
    """The state of all tenants at one time."""

    board: LiveStats = field(default_factory=LiveStats)
    hour: Steps = field(default_factory=dict)
    number: int = 0
    parts: dict[object, Markup] = field(default_factory=dict)  # rendered from it


class LiveView:
    def __init__(self, service: Service) -> None:
        self._service = service
        self.cached = Cached(self._take_snapshot, REFRESH_INTERVAL_S, on_refresh=self._wake_viewers)
        self._number = 0  # of the last snapshot
        self.histories = Histories(service)
        self._has_viewers, self._refreshed = asyncio.Event(), asyncio.Event()
        self.viewers = 0

    @contextmanager
    def viewer(self) -> Iterator[None]:
        """While this context is open, snapshots are refreshed periodically."""
        self.viewers += 1
        self._has_viewers.set()
        try:
            yield
        finally:
            self.viewers -= 1
            if not self.viewers:
                self._has_viewers.clear()

    async def latest(self) -> LiveSnapshot:
        """The last snapshot, refreshed in the background when stale. Without one, all callers wait
        for the same read."""
        return await self.cached.latest()

    async def snapshots(self) -> AsyncIterator[LiveSnapshot]:
        """The latest snapshot, then each new one; a slow viewer skips some."""
        seen = 0
        while True:
            snapshot = await self.latest()
            if snapshot.number != seen:
                seen = snapshot.number
                yield snapshot
            await self._refreshed.wait()

    async def run(self) -> None:
        while True:
            await self._has_viewers.wait()
            try:
                snapshot = await self.latest()
                await asyncio.sleep(max(1.0, snapshot.fresh_for - snapshot.age))
            except OutlastError as error:  # viewers keep the last snapshot
                log.warning("dashboard snapshot failed: %s", error)
                await asyncio.sleep(REFRESH_INTERVAL_S)

    async def _take_snapshot(self) -> LiveSnapshot:
        stats = await self._service.slow_store.arun(live_stats)
        hour = await self.histories.steps_until(HOUR, stats.at)
        self._number += 1
        return LiveSnapshot(stats, hour, self._number)

    def _wake_viewers(self) -> None:
        refreshed, self._refreshed = self._refreshed, asyncio.Event()
        refreshed.set()
