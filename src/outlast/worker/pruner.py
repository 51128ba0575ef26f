"""Queues that keep what has ended for a shorter time than others are pruned by themselves.

What has ended is found by when it ended, whichever queue it was in. So each look goes on where the
last one stopped, and now and then one begins anew, for what a flow still needed then.
"""

from __future__ import annotations

import asyncio
import time

from ..ops.keep import kept_apart, prune_queue
from ..store import Store
from ..store.blobs import Blobs, aclear

BATCHES = 20  # for one queue in one pass
ANEW_EVERY = 600.0  # seconds


class Pruner:
    def __init__(self, store: Store, blobs: Blobs | None = None) -> None:
        self._store = store
        self._blobs = blobs
        self._since: dict[tuple[str, float], float] = {}
        self._anew_at = 0.0

    async def once(self, batch: int) -> int:
        """One pass over all of them; how many jobs were removed."""
        if time.monotonic() >= self._anew_at:
            self._since.clear()
            self._anew_at = time.monotonic() + ANEW_EVERY
        return sum(
            [
                await self._prune(queue, keep, batch)
                for queue, keep in await self._store.arun(kept_apart)
            ]
        )

    async def _prune(self, queue: str, keep: float, batch: int) -> int:
        since, removed = self._since.get((queue, keep), 0.0), 0
        for _ in range(BATCHES):
            gone, since, more = await self._store.arun(prune_queue, queue, keep, since, batch)
            await aclear(self._blobs, gone.blobs)
            self._since[queue, keep] = since
            removed += gone
            if not more:
                break
            await asyncio.sleep(0.01)
        return removed
