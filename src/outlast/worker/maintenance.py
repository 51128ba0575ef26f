"""Maintenance that every worker does for the fleet: reclaim lost jobs, expire, prune, audit."""

from __future__ import annotations

import logging
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ..model.errors import DeadlineExceeded, OutlastError, StoreBusy, StoreUnavailable
from ..model.settings import RetentionSettings
from ..ops import duties
from ..ops import workers as worker_ops
from ..ops.duties import DutyTally
from ..ops.enqueue import notify_queues
from ..ops.operation import Op
from ..ops.reclaim import (
    DecideFn,
    LossSigns,
    ReclaimResult,
    Refusal,
    reclaim,
    reclaim_from_workers,
    reclaim_overdue,
    reclaim_some,
    record_refusals,
)
from ..ops.statistics import SPAN_S
from ..store import Store
from ..store.blobs.store import Blobs
from .audit import Auditor
from .blob_sweeper import BlobSweeper
from .death_detector import CONFIRM_DEATH_S, DeathDetector
from .flow_maintenance import FlowMaintenance
from .loop import Loop
from .pruner import Pruner
from .row_errors import RowSuspicion
from .schedules import NO_SCHEDULES, KnownSchedules, ScheduleFirer
from .shared import WorkerShared
from .stats_collector import StatsCollector
from .sweeper import BATCH_SIZE, RETRY_AFTER_S, Sweeper

log = logging.getLogger("outlast.worker")

MAX_POLLING_WORKERS = 4  # a larger fleet does not look more often than so many workers
OVERDUE_SLACK_S = 5.0  # beyond timeout and grace: then others end a job that still runs
OVERDUE_INTERVAL_S = 10.0  # between looks for such jobs
RECORD_INTERVAL_S = 15.0  # between records of a reclaim that found nothing


@dataclass(frozen=True, slots=True)
class Signals:
    """How maintenance announces its changes; safe from any thread."""

    poll: Callable[[], None]  # this worker: look for jobs
    ready: Callable[[set[str]], None]  # all workers: jobs are ready in these queues
    notify: Callable[[set[str]], None]  # the other workers alone
    cancelled: Callable[[], None]  # this worker: some of its jobs may be cancelled


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What maintenance needs to know of this worker's outcomes."""

    decide: DecideFn
    refused: deque[Refusal]  # and not on record yet
    trouble: Callable[[], str | None]  # why they cannot be stored, if that lasts


@dataclass(frozen=True, slots=True)
class AppParts:
    """What maintenance needs of the app."""

    retention: RetentionSettings
    blobs: Blobs | None = None
    schedules: KnownSchedules = NO_SCHEDULES


class Maintenance:
    def __init__(
        self,
        store: Store,
        shared: WorkerShared,
        outcomes: Outcomes,
        signals: Signals,
        app: AppParts,
    ) -> None:
        retention, blobs = app.retention, app.blobs
        self.store = store
        self._state = state = shared.state
        self._metrics = metrics = shared.metrics
        self._outcomes = outcomes
        self._signals = signals
        self._retention = retention
        self._blobs = blobs
        self.detector = DeathDetector(store, state)
        self._record_at = 0.0
        self._recorded_trouble: str | None = None  # of outcomes that cannot be handed in
        self._expire_at = 0.0  # not before this, whatever the sign says
        self._suspicion = RowSuspicion()
        self.sweeper = Sweeper(store)
        self.flow_maintenance = FlowMaintenance(store, self.sweeper, state, signals, metrics.counts)
        self._flows = Loop(
            "flows", self.flow_maintenance.run_once, 60.0
        )  # and whenever there is a sign
        self._expiry = Loop("expire", self.expire, RECORD_INTERVAL_S)  # likewise
        self.auditor = Auditor(
            store, state, self.detector.trust, retention, outcomes.decide, metrics.counts
        )
        self.stats_collector = StatsCollector(store)
        self.pruner = Pruner(store, state, retention, blobs)
        self.firer = ScheduleFirer(store, state, signals, metrics.counts, app.schedules)

    def loops(self) -> list[Loop]:
        prune_every = self._retention.prune_every
        audit_every = self._state.settings.audit_every
        return [
            self._flows,
            Loop("reclaim", self.reclaim, self._state.settings.reclaim_every),
            Loop(
                "deadline",
                self.skip_after_outage(self.duty("deadline", self.overdue, OVERDUE_INTERVAL_S)),
                OVERDUE_INTERVAL_S,
            ),
            self._expiry,
            self.firer.loop,
            Loop(
                "prune",
                self.skip_after_outage(self.duty("prune", self.pruner.prune, prune_every)),
                prune_every,
            ),
            Loop(
                "audit",
                self.skip_after_outage(self.duty("audit", self.auditor.audit, audit_every)),
                audit_every,
            ),
            Loop("statistics", self.duty("statistics", self.stats_collector.once, SPAN_S), SPAN_S),
            *self._blob_loops(),
        ]

    def _blob_loops(self) -> list[Loop]:
        """Only who has the store can sweep it."""
        if self._blobs is None:
            return []
        sweeper = BlobSweeper(self.store, self._blobs, self._retention.blob_grace, self._state)
        every = self._retention.blob_sweep_every
        return [Loop("blobs", self.duty("blobs", sweeper.once, every), every)]

    async def reclaim(self) -> float | None:
        """Take back what dead workers held, however their death is noticed. When the database has
        been away or locked, nobody could renew: then leases say nothing until the living had their
        turn. Nor do deadlines: an outcome may have waited for the database as long as we have."""
        try:
            signs = await self.detector.read_signs()
            result = await self._reclaim(signs)
            await self._report(result)
            await self._record(result)
            await self._record_refused()
            await self._record_trouble()
        except OutlastError:
            self.detector.database_away()
            self.detector.distrust_locks()
            raise
        return CONFIRM_DEATH_S if self.detector.suspects else self._poll_interval(signs)

    def _poll_interval(self, signs: LossSigns) -> float:
        """A large fleet looks no more often than a small one. But a lease that ends is looked at
        often enough to know what happens until then."""
        settings = self._state.settings
        wait = settings.reclaim_every * self._fleet_share
        if signs.lease:
            wait = min(wait, max(settings.reclaim_every, settings.lease / 8))
        return wait * random.uniform(0.9, 1.1)

    @property
    def _fleet_share(self) -> float:
        """A large fleet looks no more often than a small one."""
        return max(1.0, self.detector.fleet / MAX_POLLING_WORKERS)

    async def _reclaim(self, signs: LossSigns) -> ReclaimResult:
        result = ReclaimResult()
        if dead := self.detector.dead_workers(signs):
            result.add(await self.reclaim_from(dead))
            self.store.forget_workers(dead)
            self._metrics.add_reclaimed("lock", result)
        if signs.lease:
            result.add(await self._reclaim_expired())
        if signs.flows or signs.unlinked:
            self._flows.trigger()
        self.firer.observe(signs.schedule_due, signs.clock)
        if signs.expired and time.monotonic() >= self._expire_at and not self.detector.outage_grace:
            self._expiry.trigger()
        return result

    async def _reclaim_expired(self) -> ReclaimResult:
        """Take back claims whose lease ran out, as far as that is to be believed. That this went
        through shows that owners can renew; a lock in the way shows that they cannot."""

        trust = self.detector.trust

        def believed(limit: int, skip: int) -> Op[ReclaimResult]:
            sent = time.monotonic()  # on a connection: it is not what was waited for

            def probed() -> None:
                trust.probed(sent, time.monotonic())

            belief, locked = trust.belief(sent), self.store.confirm_locked
            return (yield from reclaim(limit, skip, belief, locked, probed))

        try:
            lost = await self.sweeper.sweep_lost(sweep_page=believed)
        except StoreBusy:
            trust.doubt()
            return ReclaimResult()
        self._metrics.add_reclaimed("lease", lost)
        return lost

    async def reclaim_from(self, dead: list[str]) -> ReclaimResult:
        """All at once; with a job among theirs that cannot be taken back, one by one, and that one
        is left to its lease."""
        try:
            return await self.store.arun(reclaim_from_workers, dead, "lock")
        except Exception as error:
            if not self._suspicion.blames_row(error):
                raise
        result = await self.sweeper.sweep(
            lambda limit, skip: reclaim_some(dead, "lock", limit, skip)
        )
        result.add(await self.store.arun(reclaim_from_workers, dead, "lock", "", 0))
        return result

    async def _report(self, result: ReclaimResult) -> None:
        if result.found:
            log.info("reclaimed %d of %d lost jobs (%d dead, %d failed)",
                     result.healed, result.found, result.dead, result.failed)  # fmt: skip
            self._metrics.counts["reclaimed"] += result.healed
            self._metrics.counts["reclaim_failed"] += result.failed
        if result.queues and self.store.can_notify:
            await self.store.arun(notify_queues, self.store.channel, result.queues)
        if result.healed:
            self._signals.poll()

    async def _record(self, result: ReclaimResult) -> None:
        """What was done, and from time to time that there was nothing to do."""
        now = time.monotonic()
        if result.found or now >= self._record_at:
            self._record_at = now + RECORD_INTERVAL_S * self._fleet_share
            await self._record_duty("reclaim", result)

    async def _record_duty(self, name: str, result: ReclaimResult) -> None:
        tally = judged(name, to_tally(result))
        await self.store.arun(
            duties.record_duties, {name: tally}, RECORD_INTERVAL_S, self._state.id
        )

    async def _record_refused(self) -> None:
        """Outcomes of ours that came too late: on record, so that whoever asks what a death did
        can see that nothing was done twice."""
        refused = self._outcomes.refused
        batch = [refused.popleft() for _ in range(min(len(refused), BATCH_SIZE))]
        if batch:
            await self.store.arun(record_refusals, batch)

    async def _record_trouble(self) -> None:
        """For the doctor: why outcomes of ours cannot be stored, while the database is there."""
        trouble = self._outcomes.trouble()
        if trouble != self._recorded_trouble:
            await self.store.arun(worker_ops.report_trouble, self._state.id, trouble)
            self._recorded_trouble = trouble

    def duty(
        self, name: str, once: Callable[[], Awaitable[DutyTally]], every: float
    ) -> Callable[[], Awaitable[None]]:
        """A pass that first asks whether this duty is ours to do, and records how it went."""
        known = 0.0

        async def run() -> None:
            nonlocal known
            due_at = await self.store.arun(duties.take_duty, name, every, self._state.id, known)
            if due_at is None:
                return
            known = due_at
            try:
                tally = await once()
            except Exception as error:
                await self.store.arun(
                    duties.report_duty, name, DutyTally(failed=1, error=str(error)[:500])
                )
                raise
            await self.store.arun(duties.report_duty, name, judged(name, tally))

        return run

    def skip_after_outage(
        self, duty: Callable[[], Awaitable[None]]
    ) -> Callable[[], Awaitable[None]]:
        """A duty that ends what others run is left, to whoever may do it, right after an outage;
        and whoever meets one here has met one."""

        async def run() -> None:
            try:
                await self.detector.read_signs()  # the clock may have stepped just now
                if not self.detector.outage_grace:
                    await duty()
            except (StoreUnavailable, DeadlineExceeded):
                self.detector.database_away()
                raise

        return run

    async def overdue(self) -> DutyTally:
        """Jobs that run past their own deadline although their worker lives."""
        slack = self._state.settings.cancel_grace + OVERDUE_SLACK_S
        decided = self._outcomes.decide

        def believed(limit: int, skip: int) -> Op[ReclaimResult]:
            belief = self.detector.trust.belief(time.monotonic())
            return reclaim_overdue(slack, decided, limit, skip, belief)

        result = await self.sweeper.sweep(believed)
        self._metrics.add_reclaimed("deadline", result)
        await self._report(result)
        return to_tally(result)

    async def expire(self) -> float:
        """End what nobody started in time; and from time to time say that there was nothing."""
        if self.detector.outage_grace:  # a clock that is soon set right ends nothing
            return 1.0
        self._expire_at = time.monotonic() + 1.0
        result = await self.sweeper.sweep(_expire)
        if result.failed:
            self._expire_at += RETRY_AFTER_S
        await self._record_duty("expire", result)
        return RECORD_INTERVAL_S * self._fleet_share * random.uniform(0.8, 1.0)


def _expire(limit: int, skip: int) -> Op[ReclaimResult]:
    expired = yield from duties.expire(limit, skip)
    return ReclaimResult(found=len(expired), healed=len(expired))


def to_tally(result: ReclaimResult) -> DutyTally:
    return DutyTally(result.found, result.healed, result.skipped, result.failed)


def judged(name: str, tally: DutyTally) -> DutyTally:
    """A net that only fails is told of at once, and stays on record until it does better."""
    tally = tally.with_verdict()
    if tally.error is not None:
        log.error("the duty %r heals nothing: %s", name, tally.error)
    return tally
