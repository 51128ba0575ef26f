"""What every worker does for all of them: take back what the dead held, and keep house."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ..model.errors import OutlastError
from ..ops import duties
from ..ops.duties import Tally
from ..ops.enqueue import wake
from ..ops.reclaim import Swept, any_lost, reclaim
from ..store import Store
from .loops import Loop
from .returns import about_a_row

if TYPE_CHECKING:
    from .worker import Worker

log = logging.getLogger("outlast.worker")


class Healer:
    def __init__(self, worker: Worker, store: Store) -> None:
        self.worker = worker
        self.store = store
        self._reclaim_at = 0.0

    def loops(self) -> list[Loop]:
        prune_every = self.worker.app.retention.prune_every
        return [
            Loop("reclaim", self.reclaim, self.worker.settings.reclaim_every),
            Loop("expire", self.duty("expire", self.expire, 1.0), 1.0),
            Loop("prune", self.duty("prune", self.prune, prune_every), prune_every),
        ]

    async def reclaim(self) -> None:
        """Take back what dead workers held. When the database has been away, nobody could renew:
        then the living come first, or an outage would be charged to their jobs as a crash."""
        try:
            lost = await self.store.arun(any_lost)
            swept = await self.sweep() if lost and time.monotonic() >= self._reclaim_at else Swept()
        except OutlastError:
            self._reclaim_at = time.monotonic() + 3 * self.worker.settings.renew_every
            raise
        if swept.found:
            log.info("reclaimed %d of %d lost jobs (%d dead, %d failed)",
                     swept.healed, swept.found, swept.dead, swept.failed)  # fmt: skip
            self.worker.tell("reclaimed", swept.healed)
            self.worker.tell("reclaim_failed", swept.failed)
        if swept.queues and self.store.wakes:
            await self.store.arun(wake, self.store.channel, swept.queues)
        if swept.healed:
            self.worker.post(self.worker.woken, "")

    async def sweep(self, batch: int = 500) -> Swept:
        """Page through all lost claims; a batch that fails is done one by one, so that one bad row
        keeps nobody else waiting."""
        total = Swept()
        while True:
            size = batch if total.failed == 0 else 1
            try:
                swept = await self.store.arun(reclaim, size, total.failed)
            except OutlastError as error:
                if not about_a_row(error):
                    raise
                if size > 1:
                    batch = 1
                    continue
                total.found += 1
                total.failed += 1
                log.error("a lost job cannot be reclaimed: %s", error)
                continue
            total.found += swept.found
            total.healed += swept.healed
            total.dead += swept.dead
            total.queues |= swept.queues
            if swept.found < size:
                return total

    def duty(
        self, name: str, once: Callable[[], Awaitable[Tally]], every: float
    ) -> Callable[[], Awaitable[None]]:
        """A pass that first asks whether this duty is ours to do, and records how it went."""

        async def run() -> None:
            if not await self.store.arun(duties.take, name, every * 0.8, self.worker.id):
                return
            try:
                tally = await once()
            except Exception as error:
                await self.store.arun(duties.report, name, Tally(failed=1, error=str(error)[:500]))
                raise
            await self.store.arun(duties.report, name, tally)

        return run

    async def expire(self) -> Tally:
        expired = await self.store.arun(duties.expire)
        return Tally(found=len(expired), healed=len(expired))

    async def prune(self) -> Tally:
        """Remove what ended long ago, in small transactions with room between them."""
        keep, removed = self.worker.app.retention, 0
        for state, span in (("succeeded", keep.keep_succeeded), ("cancelled", keep.keep_cancelled)):
            while batch := await self.store.arun(duties.prune, state, span, keep.prune_batch):
                removed += batch
                if batch < keep.prune_batch or self.worker.stopping:
                    break
                await asyncio.sleep(0.01)
        await self.store.arun(duties.prune_workers, keep.keep_workers)
        return Tally(found=removed, healed=removed)
