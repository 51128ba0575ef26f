"""The thread that keeps promises while the event loop is busy: renewals, reclaims, duties.

It has an event loop and connections of its own, so a handler that blocks the worker's loop loses
no lease, and a worker that is up to its ears in work still heals what others left behind.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ..model.errors import OutlastError
from ..model.outcome import release
from ..ops import duties
from ..ops.duties import Tally
from ..ops.enqueue import wake
from ..ops.finish import finish
from ..ops.reclaim import Swept, any_lost, reclaim
from ..ops.renew import Renewed, renew
from .loops import Backoff, Loop

if TYPE_CHECKING:
    from .worker import Worker

log = logging.getLogger("outlast.worker")


class Keeper:
    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.settings = worker.settings
        self.store = worker.app.store.twin()
        self.loops: list[Loop] = []
        self._strangers: set[tuple[str, int]] = set()
        self._started = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._main, name="outlast-keeper", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._started.wait()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def renew_now(self) -> None:
        """Somebody asked for a job to stop: find out which."""
        self._call(self.loops[0].poke)

    def stop(self) -> None:
        for loop in self.loops:
            self._call(loop.stop)
        self._thread.join(self.store.settings.deadline)

    def _call(self, action: Callable[[], object]) -> None:
        if self._loop is not None and not self._loop.is_closed():
            try:
                self._loop.call_soon_threadsafe(action)
            except RuntimeError:
                log.debug("the keeper is gone already")

    def _main(self) -> None:
        asyncio.run(self._keep())

    async def _keep(self) -> None:
        self._loop = asyncio.get_running_loop()
        settings, quick = self.settings, Backoff(first=min(1.0, self.settings.renew_every))
        retention = self.worker.app.retention
        self.loops = [
            Loop("renew", self.renew, settings.renew_every, quick),
            Loop("reclaim", self.reclaim, settings.reclaim_every),
            Loop("fence", self.fence, settings.reclaim_every),
            Loop("expire", self.duty("expire", self.expire, 1.0), 1.0),
            Loop("prune", self.duty("prune", self.prune, retention.prune_every),
                 retention.prune_every),
        ]  # fmt: skip
        self._started.set()
        try:
            async with asyncio.TaskGroup() as group:
                for loop in self.loops:
                    group.create_task(loop.run(), name=f"outlast-{loop.name}")
        finally:
            await self.store.aclose()

    # Renew

    async def renew(self) -> None:
        """Hold on to everything in hand; learn what is lost, what should stop, what we forgot."""
        asked_at = time.monotonic()
        worker, held = self.worker, self.worker.hands.fences()
        renewed = await self.store.arun(renew, worker.id, held, self.settings.lease)
        worker.post(worker.renewed, renewed, held, asked_at)
        await self._release_strangers(renewed)
        if not await self.store.arun(duties.live, worker.id, len(held), worker.state):
            await self.store.arun(duties.arrive, worker.card())

    async def _release_strangers(self, renewed: Renewed) -> None:
        """A claim whose answer was lost on its way to us is ours in the database and in nobody's
        hands. Seen twice, it was not just on its way: put it back, unspent."""
        seen = {(claim.id, claim.fence) for claim in renewed.strangers}
        again, self._strangers = seen & self._strangers, seen
        forgotten = [c for c in renewed.strangers if (c.id, c.fence) in again]
        forgotten = [c for c in forgotten if self.worker.hands.get(c.id, c.fence) is None]
        if forgotten:
            log.warning("releasing %d claims that never reached us", len(forgotten))
            await self.store.arun(finish, [release(claim) for claim in forgotten])
            self.worker.tell("released", len(forgotten))

    async def fence(self) -> None:
        """A worker that cannot renew lets go before others may take over."""
        if self.worker.hands.overdue():
            self.worker.post(self.worker.lose_overdue)

    # Heal

    async def reclaim(self) -> None:
        """Take back what dead workers held."""
        if not await self.store.arun(any_lost):
            return
        swept = await self.sweep()
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

    # Duties

    def duty(
        self, name: str, once: Callable[[], Awaitable[Tally]], every: float
    ) -> Callable[[], Awaitable[None]]:
        """A pass that first asks whether this duty is ours to do, and records how it went."""

        async def run() -> None:
            if not await self.store.arun(duties.take, name, every * 0.9, self.worker.id):
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
