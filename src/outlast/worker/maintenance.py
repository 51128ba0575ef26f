"""Maintenance, which every worker does for the fleet: reclaim lost jobs, expire, prune, audit."""

from __future__ import annotations

import logging
import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from ..loops import Loop
from ..model.errors import OutlastError, StoreBusy
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
from .archiver import ARCHIVE_EVERY_S, Archiver
from .audit import Auditor
from .blob_sweeper import BlobSweeper
from .death_detector import CONFIRM_DEATH_S, DeathDetector
from .duties import DutyRunner, to_tally
from .flow_maintenance import FlowMaintenance
from .pruner import Pruner
from .row_errors import RowSuspicion
from .schedules import NO_SCHEDULES, KnownSchedules, ScheduleFirer
from .shared import WorkerShared
from .stats_collector import StatsCollector
from .sweeper import BATCH_SIZE, RETRY_AFTER_S, Sweeper
from .wait_maintenance import WaitMaintenance

log = logging.getLogger("outlast.worker")

MAX_POLLING_WORKERS = 4  # a larger fleet polls no more often than this many workers
OVERDUE_SLACK_S = 5.0  # after timeout and grace, another worker ends a job that still runs
OVERDUE_INTERVAL_S = 10.0  # between polls for such jobs
RECORD_INTERVAL_S = 15.0  # between records of a reclaim that found nothing


@dataclass(frozen=True, slots=True)
class Signals:
    """Signals of maintenance about its changes; safe from any thread."""

    poll: Callable[[], None]  # this worker: poll for jobs
    ready: Callable[[set[str]], None]  # all workers: jobs are ready in these queues
    notify: Callable[[set[str]], None]  # the other workers alone
    cancelled: Callable[[], None]  # this worker: some of its jobs may be cancelled


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The outcomes of this worker, as maintenance needs them."""

    decide: DecideFn
    refused: deque[Refusal]  # late outcomes that are not recorded yet
    trouble: Callable[[], str | None]  # why outcomes cannot be stored, if the failure persists


@dataclass(frozen=True, slots=True)
class AppParts:
    """Settings and stores of the app that maintenance uses."""

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
        self.duties = DutyRunner(store, state.id, self.detector)
        self._record_at = 0.0
        self._recorded_trouble: str | None = None  # why outcomes cannot be reported
        self._expire_at = 0.0  # the earliest next pass, even if there are signs
        self._suspicion = RowSuspicion()
        self.sweeper = Sweeper(store)
        self.flow_maintenance = FlowMaintenance(store, self.sweeper, state, signals, metrics.counts)
        # Signs trigger these three loops early.
        self.wait_maintenance = WaitMaintenance(self.sweeper, signals)
        self._waits = Loop("waits", self.wait_maintenance.run_once, 60.0)
        self._flows = Loop("flows", self.flow_maintenance.run_once, 60.0)
        self._expiry = Loop("expire", self.expire, RECORD_INTERVAL_S)
        self.auditor = Auditor(
            store, state, self.detector.trust, retention, outcomes.decide, metrics.counts
        )
        self.stats_collector = StatsCollector(store)
        self.pruner = Pruner(store, state, retention, blobs)
        self.firer = ScheduleFirer(store, state, signals, metrics.counts, app.schedules)

    def loops(self) -> list[Loop]:
        duty, after_outage = self.duties.duty, self.duties.skip_after_outage
        prune_every = self._retention.prune_every
        audit_every = self._state.settings.audit_every
        return [
            self._flows,
            self._waits,
            Loop("reclaim", self.reclaim, self._state.settings.reclaim_every),
            Loop(
                "deadline",
                after_outage(duty("deadline", self.overdue, OVERDUE_INTERVAL_S)),
                OVERDUE_INTERVAL_S,
            ),
            self._expiry,
            self.firer.loop,
            Loop(
                "prune",
                after_outage(duty("prune", self.pruner.prune, prune_every)),
                prune_every,
            ),
            Loop(
                "audit",
                after_outage(duty("audit", self.auditor.audit, audit_every)),
                audit_every,
            ),
            Loop("statistics", duty("statistics", self.stats_collector.once, SPAN_S), SPAN_S),
            *self._archive_loops(),
            *self._blob_loops(),
        ]

    def _archive_loops(self) -> list[Loop]:
        """The archive duty, on PostgreSQL only. It drops expired days even when no job moves."""
        if (partitions := self.store.partitions) is None:
            return []
        archiver = Archiver(self.store, partitions, self._state, self._retention)
        duty = self.duties.duty("archive", archiver.once, ARCHIVE_EVERY_S)
        return [Loop("archive", self.duties.skip_after_outage(duty), ARCHIVE_EVERY_S)]

    def _blob_loops(self) -> list[Loop]:
        """The sweep of blobs, for workers with a blob store."""
        if self._blobs is None:
            return []
        sweeper = BlobSweeper(self.store, self._blobs, self._retention.blob_grace, self._state)
        every = self._retention.blob_sweep_every
        return [Loop("blobs", self.duties.duty("blobs", sweeper.once, every), every)]

    async def reclaim(self) -> float | None:
        """Reclaim the jobs of dead workers. While the database was unavailable or locked, no worker
        could renew or report outcomes: neither leases nor deadlines prove anything until live
        workers have had time to."""
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
        """A large fleet polls no more often than a small one, except to watch a lease that ends
        soon."""
        settings = self._state.settings
        wait = settings.reclaim_every * self._fleet_share
        if signs.lease:
            wait = min(wait, max(settings.reclaim_every, settings.lease / 8))
        return wait * random.uniform(0.9, 1.1)

    @property
    def _fleet_share(self) -> float:
        """Factor that keeps the total rate of a large fleet constant."""
        return max(1.0, self.detector.fleet / MAX_POLLING_WORKERS)

    async def _reclaim(self, signs: LossSigns) -> ReclaimResult:
        result = ReclaimResult()
        if dead := self.detector.dead_workers(signs):
            result.add(await self.reclaim_from(dead))
            self.store.forget_workers(dead)
            self._metrics.add_reclaimed("lock", result)
        if signs.lease:
            result.add(await self._reclaim_expired())
        if signs.flows or signs.cancels or signs.unlinked:
            self._flows.trigger()
        if signs.waits:
            self._waits.trigger()
        self.firer.observe(signs.schedule_due, signs.clock)
        if signs.expired and time.monotonic() >= self._expire_at and not self.detector.outage_grace:
            self._expiry.trigger()
        return result

    async def _reclaim_expired(self) -> ReclaimResult:
        """Reclaim trusted expired leases. A pass that succeeds shows that owners can renew; a pass
        that meets a lock shows that they cannot."""

        trust = self.detector.trust

        def believed(limit: int, skip: int) -> Op[ReclaimResult]:
            sent = time.monotonic()  # the wait for a connection does not count

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
        """Reclaim all jobs of these workers at once. If a row fails, reclaim in smaller batches,
        and leave that row to its lease."""
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
        """Record every pass that found something, and idle ones at intervals."""
        now = time.monotonic()
        if result.found or now >= self._record_at:
            self._record_at = now + RECORD_INTERVAL_S * self._fleet_share
            await self.duties.record("reclaim", result, RECORD_INTERVAL_S)

    async def _record_refused(self) -> None:
        """Record this worker's late outcomes: the history of a reclaimed job shows that none was
        applied twice."""
        refused = self._outcomes.refused
        batch = [refused.popleft() for _ in range(min(len(refused), BATCH_SIZE))]
        if batch:
            await self.store.arun(record_refusals, batch)

    async def _record_trouble(self) -> None:
        """Record, for the doctor, why this worker's outcomes cannot be stored."""
        trouble = self._outcomes.trouble()
        if trouble != self._recorded_trouble:
            await self.store.arun(worker_ops.report_trouble, self._state.id, trouble)
            self._recorded_trouble = trouble

    async def overdue(self) -> DutyTally:
        """End jobs that run past their timeout although their worker is alive."""
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
        """Expire jobs that were not started in time, and record the pass."""
        if self.detector.outage_grace:  # the clock may be wrong for a moment
            return 1.0
        self._expire_at = time.monotonic() + 1.0
        result = await self.sweeper.sweep(_expire)
        if result.failed:
            self._expire_at += RETRY_AFTER_S
        await self.duties.record("expire", result, RECORD_INTERVAL_S)
        return RECORD_INTERVAL_S * self._fleet_share * random.uniform(0.8, 1.0)


def _expire(limit: int, skip: int) -> Op[ReclaimResult]:
    expired = yield from duties.expire(limit, skip)
    return ReclaimResult(found=len(expired), healed=len(expired))
