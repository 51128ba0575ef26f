"""Removes blobs that no job refers to: a duty of those who have the store that they are in.

They are left by whoever died between a blob and its row, or rolled back, or lost a claim; and by
those who removed a row and could not reach the store.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

from ..ops.blobs import unreferred
from ..ops.duties import Tally
from ..store import Store
from ..store.blobs import Blobs

if TYPE_CHECKING:
    from .worker import Worker

PAGE = 500


class BlobSweeper:
    def __init__(self, worker: Worker, store: Store, blobs: Blobs) -> None:
        self._worker = worker
        self._store = store
        self._blobs = blobs

    async def once(self) -> Tally:
        """One pass over all that are old enough. Which of them are referred to is asked after they
        were listed: a row that refers to one has been there since before it was old."""
        tally = Tally()
        old = self._blobs.old(self._worker.app.retention.blob_grace)
        while page := await asyncio.to_thread(list, itertools.islice(old, PAGE)):
            lost = await self._store.arun(unreferred, page)
            left = await asyncio.to_thread(self._blobs.remove, lost)
            tally.add(Tally(len(lost), len(lost) - left, failed=left))
            if self._worker.stopping:
                break
        return tally
