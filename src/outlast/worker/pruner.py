"""Queues that keep what has ended for a shorter time than others are pruned by themselves.

What has ended is found by when it ended, whichever queue it was in. So each look goes on where the
last one stopped, and now and then one begins anew, for what a flow still needed then.
"""

from __future__ import annotations

import asyncio
import time

from ..ops.retention import prune_queue, queue_retentions
from ..store import Store
from ..store.blobs.store import Blobs, adelete_blobs

MAX_BATCHES = 20  # for one queue in one pass
FULL_SCAN_INTERVAL_S = 600.0  # seconds


class Pruner:
    def __init__(self, store: Store, blobs: Blobs | None = None) -> None:
        self._store = store
        self._blobs = blobs
        self._since: dict[tuple[str, float], float] = {}
        self._full_scan_at = 0.0

    async def once(self, batch: int) -> int:
        """One pass over all of them; how many jobs were removed."""
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
            await asyncio.sleep(0.01)
        return removed
