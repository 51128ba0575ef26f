"""Sweep blobs that no job refers to: a duty of workers that have the blob store.

Such blobs are left by processes that died between writing a blob and its row, rolled back, lost a
claim, or removed a row while the blob store was unavailable.
"""

from __future__ import annotations

import asyncio
import itertools

from ..ops.blobs import unreferenced
from ..ops.duties import DutyTally
from ..store import Store
from ..store.blobs.store import Blobs
from .state import WorkerState

PAGE_SIZE = 500


class BlobSweeper:
    def __init__(self, store: Store, blobs: Blobs, grace: float, state: WorkerState) -> None:
        self._store = store
        self._blobs = blobs
        self._grace = grace
        self._state = state

    async def once(self) -> DutyTally:
        """Sweep all blobs that are old enough. References are read after the listing: the row of a
        blob is older than the grace period."""
        tally = DutyTally()
        old = self._blobs.old(self._grace)
        while page := await asyncio.to_thread(list, itertools.islice(old, PAGE_SIZE)):
            lost = await self._store.arun(unreferenced, page)
            left = await asyncio.to_thread(self._blobs.remove, lost)
            tally.add(DutyTally(len(lost), len(lost) - left, failed=left))
            if self._state.stopping:
                break
        return tally
