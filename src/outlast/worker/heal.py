"""What every worker does for all of them: take back what the dead held, and keep house."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ..model.errors import DeadlineExceeded, OutlastError, StoreBusy, StoreUnavailable
from ..model.lease_trust import LeaseTrust
from ..ops import duties, events
from ..ops.duties import Tally
from ..ops.enqueue import wake
from ..ops.reclaim import (
    Signs,
    Swept,
    bury,
    inherit,
    reclaim,
    reclaim_overdue,
    refusals,
    signs_of_loss,
)
from ..ops.statement import Op
from ..ops.statistics import SPAN
from ..store import Store
from ..store.blobs import aclear
from .audit import Auditor
from .blob_sweeper import BlobSweeper
from .flow_tender import FlowTender
from .loops import Loop
from .pruner import Pruner
from .row_faults import Suspicion
from .statistician import Statistician
from .sweeper import BATCH, SET_ASIDE, Sweeper

if TYPE_CHECKING:
    from .worker import Worker

log = logging.getLogger("outlast.worker")

SHARED = 4  # workers; a larger fleet does not look more often than so many
CERTAIN = 0.15  # seconds between the two looks that make sure of a death
SOON = 0.6  # of a lease: what is left of one that its owner should have renewed
TOO_LONG = 60.0  # seconds beyond two leases: as in the audit's `endless`
REUNION = 3.0  # seconds at least after an outage in which a free lock says nothing
OVERTIME = 5.0  # seconds beyond timeout and grace after which others end a job that still runs
OVERDUE_EVERY = 10.0  # seconds between looks for such jobs
RECORD_EVERY = 15.0  # seconds between notes that the reclaim is done, while there is nothing to do


class Healer:
    def __init__(self, worker: Worker, store: Store) -> None:
        self.worker = worker
        self.store = store
        self._suspected: dict[str, float] = {}  # workers without a lock, and since when
        self.trust = LeaseTrust(worker.settings.lease, worker.settings.renew_every)
        self._away = False  # the database, when last asked
        self._locks_count_at = 0.0
        self._record_at = 0.0
        self._told_trouble: str | None = None  # of outcomes that cannot be handed in
        self._fleet = 1
        self._expire_at = 0.0  # not before this, whatever the sign says
        self._suspicion = Suspicion()
        self.sweeper = Sweeper(store)
        self.tender = FlowTender(worker, store, self.sweeper)
        self._flows = Loop("flows", self.tender.tend, 60.0)  # and whenever there is a sign
        self._expiry = Loop("expire", self.expire, RECORD_EVERY)  # likewise
        self.auditor = Auditor(worker, store, self.trust)
        self.statistician = Statistician(store)
        self._pruner = Pruner(store, worker.app.blobs)

    def loops(self) -> list[Loop]:
        prune_every = self.worker.app.retention.prune_every
        audit_every = self.worker.settings.audit_every
        return [
            self._flows,
            Loop("reclaim", self.reclaim, self.worker.settings.reclaim_every),
            Loop(
                "deadline",
                self.calmly(self.duty("deadline", self.overdue, OVERDUE_EVERY)),
                OVERDUE_EVERY,
            ),
            self._expiry,
            Loop("prune", self.calmly(self.duty("prune", self.prune, prune_every)), prune_every),
            Loop(
                "audit",
                self.calmly(self.duty("audit", self.auditor.audit, audit_every)),
                audit_every,
            ),
            Loop("statistics", self.duty("statistics", self.statistician.once, SPAN), SPAN),
            *self._blob_loops(),
        ]

    def _blob_loops(self) -> list[Loop]:
        """Only who has the store can sweep it."""
        blobs, every = self.worker.app.blobs, self.worker.app.retention.blob_sweep_every
        if blobs is None:
            return []
        sweeper = BlobSweeper(self.worker, self.store, blobs)
        return [Loop("blobs", self.duty("blobs", sweeper.once, every), every)]

    async def reclaim(self) -> float | None:
        """Take back what dead workers held, however their death is noticed. When the database has
        been away or locked, nobody could renew: then leases say nothing until the living had their
        turn. Nor do deadlines: an outcome may have waited for the database as long as we have."""
        try:
            signs = await self._look()
            swept = await self._reclaim(signs)
            await self._report(swept)
            await self._record(swept)
            await self._tell_refused()
            await self._tell_trouble()
        except OutlastError:
            self._away = True
            self.trust.doubt()
            self.doubt_locks()
            raise
        return CERTAIN if self._suspected else self._pause(signs)

    def _pause(self, signs: Signs) -> float:
        """A large fleet looks no more often than a small one. But a lease that ends is looked at
        often enough to know what happens until then."""
        settings = self.worker.settings
        wait = settings.reclaim_every * self._share
        if signs.lease:
            wait = min(wait, max(settings.reclaim_every, settings.lease / 8))
        return wait * random.uniform(0.9, 1.1)

    @property
    def _share(self) -> float:
        """A large fleet looks no more often than a small one."""
        return max(1.0, self._fleet / SHARED)

    async def _look(self) -> Signs:
        """What speaks for a loss, and what time it is. A living owner renews before a third of its
        lease is over: where less than SOON is left, what happens from now on matters. So it does
        where a lease is TOO_LONG, since the audit is to judge it."""
        sent, lease = time.monotonic(), self.worker.settings.lease
        signs = await self.store.arun(signs_of_loss, lease * SOON, 2 * lease + TOO_LONG)
        if self.trust.look(signs.clock, sent, time.monotonic()):
            log.warning("the database's clock has stepped: leases are judged after one renewal")
        if self._away:  # from now on, however long it was until we asked again
            self._away = False
            self.doubt_locks()
        self._fleet = signs.fleet
        return signs

    async def _reclaim(self, signs: Signs) -> Swept:
        dead = []
        if time.monotonic() >= self._locks_count_at:
            dead = self._certainly_dead(self.store.confirm_dead(signs.workers))
        swept = Swept()
        if dead:
            swept.add(await self.bury(dead))
            self.store.buried(dead)
            self.worker.figures.took_back("lock", swept)
        if signs.lease:
            swept.add(await self._reclaim_expired())
        if signs.flows or signs.late:
            self._flows.poke()
        if signs.expired and time.monotonic() >= self._expire_at and not self.reunion:
            self._expiry.poke()
        return swept

    async def _reclaim_expired(self) -> Swept:
        """Take back claims whose lease ran out, as far as that is to be believed. That this went
        through shows that owners can renew; a lock in the way shows that they cannot."""

        def believed(limit: int, skip: int) -> Op[Swept]:
            sent = time.monotonic()  # on a connection: it is not what was waited for

            def probed() -> None:
                self.trust.probed(sent, time.monotonic())

            belief, locked = self.trust.belief(sent), self.store.confirm_locked
            return (yield from reclaim(limit, skip, belief, locked, probed))

        try:
            lost = await self.sweeper.lost(once=believed)
        except StoreBusy:
            self.trust.doubt()
            return Swept()
        self.worker.figures.took_back("lease", lost)
        return lost

    @property
    def reunion(self) -> bool:
        """The database is away, or has been just now, or its clock has stepped: the living have not
        all had their turn."""
        return self.trust.unsettled(time.monotonic())

    def doubt_locks(self) -> None:
        """A broken connection of our own: others may be making theirs anew as well."""
        self._locks_count_at = time.monotonic() + max(REUNION, self.worker.settings.renew_every)
        self._suspected = {}

    async def bury(self, dead: list[str]) -> Swept:
        """All at once; with a job among theirs that cannot be taken back, one by one, and that one
        is left to its lease."""
        try:
            return await self.store.arun(bury, dead, "lock")
        except Exception as error:
            if not self._suspicion.falls_on_a_row(error):
                raise
        swept = await self.sweeper.through(lambda limit, skip: inherit(dead, "lock", limit, skip))
        swept.add(await self.store.arun(bury, dead, "lock", "", 0))
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

    async def _record(self, swept: Swept) -> None:
        """What was done, and from time to time that there was nothing to do."""
        now = time.monotonic()
        if swept.found or now >= self._record_at:
            self._record_at = now + RECORD_EVERY * self._share
            await self._write_down("reclaim", swept)

    async def _write_down(self, name: str, swept: Swept) -> None:
        tally = judged(name, tally_of(swept))
        await self.store.arun(duties.record, {name: tally}, RECORD_EVERY, self.worker.id)

    async def _tell_refused(self) -> None:
        """Outcomes of ours that came too late: on record, so that whoever asks what a death did
        can see that nothing was done twice."""
        refused = self.worker.returns.refused
        told = [refused.popleft() for _ in range(min(len(refused), BATCH))]
        if told:
            await self.store.arun(refusals, told)

    async def _tell_trouble(self) -> None:
        """For the doctor: why outcomes of ours cannot be stored, while the database is there."""
        trouble = self.worker.returns.trouble()
        if trouble != self._told_trouble:
            await self.store.arun(duties.tell_trouble, self.worker.id, trouble)
            self._told_trouble = trouble

    def duty(
        self, name: str, once: Callable[[], Awaitable[Tally]], every: float
    ) -> Callable[[], Awaitable[None]]:
        """A pass that first asks whether this duty is ours to do, and records how it went."""

        async def run() -> None:
            if not await self.store.arun(duties.take, name, every, self.worker.id):
                return
            try:
                tally = await once()
            except Exception as error:
                await self.store.arun(duties.report, name, Tally(failed=1, error=str(error)[:500]))
                raise
            await self.store.arun(duties.report, name, judged(name, tally))

        return run

    def calmly(self, duty: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        """A duty that ends what others run is left, to whoever may do it, right after an outage;
        and whoever meets one here has met one."""

        async def run() -> None:
            try:
                await self._look()  # the clock may have stepped just now
                if not self.reunion:
                    await duty()
            except (StoreUnavailable, DeadlineExceeded):
                self._away = True
                self.trust.doubt()
                raise

        return run

    async def overdue(self) -> Tally:
        """Jobs that run past their own deadline although their worker lives."""
        slack = self.worker.settings.cancel_grace + OVERTIME
        decided = self.worker.carrier.decide

        def believed(limit: int, skip: int) -> Op[Swept]:
            belief = self.trust.belief(time.monotonic())
            return reclaim_overdue(slack, decided, limit, skip, belief)

        swept = await self.sweeper.through(believed)
        self.worker.figures.took_back("deadline", swept)
        await self._report(swept)
        return tally_of(swept)

    async def expire(self) -> float:
        """End what nobody started in time; and from time to time say that there was nothing."""
        if self.reunion:  # a clock that is set right again within seconds ends nothing
            return 1.0
        self._expire_at = time.monotonic() + 1.0
        swept = await self.sweeper.through(_expire)
        if swept.failed:
            self._expire_at += SET_ASIDE
        await self._write_down("expire", swept)
        return RECORD_EVERY * self._share * random.uniform(0.8, 1.0)

    async def prune(self) -> Tally:
        """Remove what ended long ago, in small transactions with room between them."""
        keep, removed = self.worker.app.retention, 0
        for once in (
            partial(duties.prune, "succeeded", keep.keep_succeeded),
            partial(duties.prune, "cancelled", keep.keep_cancelled),
            partial(duties.prune_incidents, keep.keep_incidents),
        ):
            while batch := await self.store.arun(once, keep.prune_batch):
                await aclear(self.worker.app.blobs, batch.blobs)
                removed += batch
                if batch < keep.prune_batch or self.worker.stopping:
                    break
                await asyncio.sleep(0.01)
        removed += await self._pruner.once(keep.prune_batch)
        await self.store.arun(duties.prune_workers, keep.keep_workers)
        await self.place_events()
        return Tally(found=removed, healed=removed)

    async def place_events(self) -> None:
        """Whoever follows events gives them their places. Where nobody does, somebody has to now
        and then, or the first who comes would wait until it is done for all of them."""
        while (await self.store.arun(events.place))[0] == events.PLACES:
            if self.worker.stopping:
                break
            await asyncio.sleep(0.01)


def _expire(limit: int, skip: int) -> Op[Swept]:
    expired = yield from duties.expire(limit, skip)
    return Swept(found=len(expired), healed=len(expired))


def tally_of(swept: Swept) -> Tally:
    return Tally(swept.found, swept.healed, swept.skipped, swept.failed)


def judged(name: str, tally: Tally) -> Tally:
    """A net that only fails is told of at once, and stays on record until it does better."""
    tally = tally.judged()
    if tally.error is not None:
        log.error("the duty %r heals nothing: %s", name, tally.error)
    return tally
