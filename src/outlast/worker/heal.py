"""What every worker does for all of them: take back what the dead held, and keep house."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from ..model.errors import OutlastError
from ..ops import duties
from ..ops.duties import Tally
from ..ops.enqueue import wake
from ..ops.reclaim import Swept, bury, forget, reclaim, reclaim_overdue, signs_of_loss
from ..store import Store
from .loops import Loop
from .returns import about_a_row

if TYPE_CHECKING:
    from .worker import Worker

log = logging.getLogger("outlast.worker")

SHARED = 4  # workers; a larger fleet does not look more often than so many
CERTAIN = 0.15  # seconds between the two looks that make sure of a death
REUNION = 3.0  # seconds after an outage in which a free lock says nothing
OVERTIME = 5.0  # seconds beyond timeout and grace after which others end a job that still runs


class Healer:
    def __init__(self, worker: Worker, store: Store) -> None:
        self.worker = worker
        self.store = store
        self._suspected: dict[str, float] = {}  # workers without a lock, and since when
        self._leases_count_at = 0.0
        self._locks_count_at = 0.0

    def loops(self) -> list[Loop]:
        prune_every = self.worker.app.retention.prune_every
        return [
            Loop("reclaim", self.reclaim, self.worker.settings.reclaim_every),
            Loop("deadline", self.duty("deadline", self.overdue, OVERTIME), OVERTIME),
            Loop("expire", self.duty("expire", self.expire, 1.0), 1.0),
            Loop("prune", self.duty("prune", self.prune, prune_every), prune_every),
        ]

    async def reclaim(self) -> float | None:
        """Take back what dead workers held, however their death is noticed. When the database has
        been away, nobody could renew: then leases say nothing until the living had their turn, or
        an outage would be charged to their jobs as a crash."""
        try:
            swept, fleet = await self._reclaim()
            await self._report(swept)
        except OutlastError:
            self._leases_count_at = time.monotonic() + 3 * self.worker.settings.renew_every
            self.doubt_locks()
            raise
        if self._suspected:
            return CERTAIN
        share = max(1.0, fleet / SHARED)
        return self.worker.settings.reclaim_every * share * random.uniform(0.8, 1.0)

    async def _reclaim(self) -> tuple[Swept, int]:
        signs = await self.store.arun(signs_of_loss)
        dead = []
        if time.monotonic() >= self._locks_count_at:
            dead = self._certainly_dead(self.store.confirm_dead(signs.workers))
        swept = Swept()
        if dead:
            swept.add(await self.bury(dead))
        if signs.lease and time.monotonic() >= self._leases_count_at:
            swept.add(await self.sweep())
        return swept, signs.fleet

    def doubt_locks(self) -> None:
        """A broken connection of our own: others may be making theirs anew as well."""
        self._locks_count_at = time.monotonic() + REUNION
        self._suspected = {}

    async def bury(self, dead: Sequence[str]) -> Swept:
        """If a row of theirs cannot be written, all wait for their leases, where each is dealt with
        by itself."""
        try:
            swept = await self.store.arun(bury, dead, "lock")
        except OutlastError as error:
            if not about_a_row(error):
                raise
            log.error("what dead workers held is left to its leases: %s", error)
            await self.store.arun(forget, dead)
            swept = Swept()
        self.store.buried(dead)
        self.worker.tell("buried", len(dead))
        return swept

    def _certainly_dead(self, silent: Sequence[str]) -> list[str]:
        """A lock is free for a moment when its connection breaks and is made again: dead is who is
        seen without one twice."""
        now = time.monotonic()
        first_seen = {id: self._suspected.get(id, now) for id in silent if id != self.worker.id}
        dead = [id for id, since in first_seen.items() if now - since >= CERTAIN * 0.9]
        self._suspected = {id: since for id, since in first_seen.items() if id not in dead}
        return dead

    async def _report(self, swept: Swept) -> None:
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
            total.add(swept)
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

    async def overdue(self) -> Tally:
        """Jobs that run past their own deadline although their worker lives."""
        slack = self.worker.settings.cancel_grace + OVERTIME
        swept = await self.store.arun(reclaim_overdue, slack, random.random())
        await self._report(swept)
        return Tally(found=swept.found, healed=swept.healed, failed=swept.failed)

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
