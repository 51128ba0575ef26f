"""Pruner: removes jobs whose retention is over, in small transactions."""

from __future__ import annotations

import asyncio
import time
from functools import partial

from ..model.settings import RetentionSettings
from ..ops import events, retention
from ..ops.duties import DutyTally
from ..ops.lanes import prune_lanes
from ..ops.quotas import prune_quotas, return_lapsed
from ..ops.retention import prune_queue, queue_retentions
from ..store import Store
from ..store.blobs.store import Blobs, adelete_blobs
from .state import WorkerState

MAX_BATCHES = 20  # for one queue in one pass
FULL_SCAN_INTERVAL_S = 600.0
PAUSE_S = 0.01  # between transactions


class Pruner:
    """Removes jobs, incidents and workers whose retention is over."""

    def __init__(
        self, store: Store, state: WorkerState, keep: RetentionSettings, blobs: Blobs | None
    ) -> None:
        self._store = store
        self._state = state
        self._keep = keep
        self._blobs = blobs
        self._queues = QueuePruner(store, blobs)

    async def prune(self) -> DutyTally:
        """Remove all due rows, with pauses between the transactions."""
        keep, removed = self._keep, 0
        for once in (
            partial(retention.prune, "succeeded", keep.keep_succeeded),
            partial(retention.prune, "cancelled", keep.keep_cancelled),
            partial(retention.prune_incidents, keep.keep_incidents),
        ):
            while batch := await self._store.arun(once, keep.prune_batch):
                await adelete_blobs(self._blobs, batch.blobs)
                removed += batch
                if batch < keep.prune_batch or self._state.stopping:
                    break
                await asyncio.sleep(PAUSE_S)
        removed += await self._queues.once(keep.prune_batch)
        await self._prune_lanes()
        await self._store.arun(retention.prune_workers, keep.keep_workers)
        await self._sequence_events()
        return DutyTally(found=removed, healed=removed)

    async def _prune_lanes(self) -> None:
        """Prune full token buckets, such as those of lanes that are gone, and the counts of past
        quota periods."""
        batch = self._keep.prune_batch
        for prune in (prune_lanes, prune_quotas):
            while await self._store.arun(prune, batch) == batch:
                if self._state.stopping:
                    break
                await asyncio.sleep(PAUSE_S)
        await self._store.arun(return_lapsed)

    async def _sequence_events(self) -> None:
        """Assign positions to events, which their followers do otherwise. Without followers, the
        first one would have to wait for all of them."""
        full = events.MAX_POSITIONS_PER_BATCH
        while (await self._store.arun(events.assign_positions))[0] == full:
            if self._state.stopping:
                break
            await asyncio.sleep(PAUSE_S)


class QueuePruner:
    """Prunes queues with a shorter retention of their own.

    Ended jobs are found by their end time, across all queues. So each pass continues where the last
    one stopped, and a full scan at intervals finds jobs that a flow needed before.
    """

    def __init__(self, store: Store, blobs: Blobs | None = None) -> None:
        self._store = store
        self._blobs = blobs
        self._since: dict[tuple[str, float], float] = {}
        self._full_scan_at = 0.0

    async def once(self, batch: int) -> int:
        """Prune all these queues once; returns the number of removed jobs."""
        if time.monotonic() >= self._full_scan_at:
            self._since.clear()
            self._full_scan_at = time.monotonic() + FULL_SCAN_INTERVAL_S
        return sum(
            [
                await self._prune(queue, keep, batch)
                for queue, keep in await self._store.arun(queue_retentions)
            ]
        )

    async def _prune(self, queue: str, keep: float, batch: int) -> int:
        since, removed = self._since.get((queue, keep), 0.0), 0
        for _ in range(MAX_BATCHES):
            gone, since, more = await self._store.arun(prune_queue, queue, keep, since, batch)
            await adelete_blobs(self._blobs, gone.blobs)
            self._since[queue, keep] = since
            removed += gone
            if not more:
                break
            await asyncio.sleep(PAUSE_S)
        return removed
