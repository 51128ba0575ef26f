"""Removes blobs that no job refers to: a duty of those who have the store that they are in.

They are left by whoever died between a blob and its row, or rolled back, or lost a claim; and by
those who removed a row and could not reach the store.
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
        """One pass over all that are old enough. Which of them are referred to is asked after they
        were listed: a row that refers to one has been there since before it was old."""
        tally = DutyTally()
        old = self._blobs.old(self._grace)
        while page := await asyncio.to_thread(list, itertools.islice(old, PAGE_SIZE)):
            lost = await self._store.arun(unreferenced, page)
            left = await asyncio.to_thread(self._blobs.remove, lost)
            tally.add(DutyTally(len(lost), len(lost) - left, failed=left))
            if self._state.stopping:
                break
        return tally
