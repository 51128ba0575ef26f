"""Duties of the fleet: workers take each in turn, and record its result."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from ..model.errors import DeadlineExceeded, StoreUnavailable
from ..ops import duties
from ..ops.duties import DutyTally
from ..ops.reclaim import ReclaimResult
from ..store import Store
from .death_detector import DeathDetector

log = logging.getLogger("outlast.worker")


class DutyRunner:
    def __init__(self, store: Store, worker_id: str, detector: DeathDetector) -> None:
        self._store = store
        self._worker_id = worker_id
        self._detector = detector

    def duty(
        self, name: str, once: Callable[[], Awaitable[DutyTally]], every: float
    ) -> Callable[[], Awaitable[None]]:
        """A pass that runs if it is this worker's turn, and records its result."""
        known = 0.0

        async def run() -> None:
            nonlocal known
            due_at = await self._store.arun(duties.take_duty, name, every, self._worker_id, known)
            if due_at is None:
                return
            known = due_at
            try:
                tally = await once()
            except Exception as error:
                await self._store.arun(
                    duties.report_duty, name, DutyTally(failed=1, error=str(error)[:500])
                )
                raise
            await self._store.arun(duties.report_duty, name, _with_verdict(name, tally))

        return run

    def skip_after_outage(
        self, duty: Callable[[], Awaitable[None]]
    ) -> Callable[[], Awaitable[None]]:
        """Skip a duty that ends other workers' jobs right after an outage or a clock step, and note
        an outage during the pass."""

        async def run() -> None:
            try:
                await self._detector.read_signs()  # the clock may have stepped just now
                if not self._detector.outage_grace:
                    await duty()
            except (StoreUnavailable, DeadlineExceeded):
                self._detector.database_away()
                raise

        return run

    async def record(self, name: str, result: ReclaimResult, every: float) -> None:
        """Record a pass that every worker runs, without turns."""
        tally = _with_verdict(name, to_tally(result))
        await self._store.arun(duties.record_duties, {name: tally}, every, self._worker_id)


def to_tally(result: ReclaimResult) -> DutyTally:
    return DutyTally(result.found, result.healed, result.skipped, result.failed)


def _with_verdict(name: str, tally: DutyTally) -> DutyTally:
    """Log a duty that only fails; its error stays on record until a pass succeeds."""
    tally = tally.with_verdict()
    if tally.error is not None:
        log.error("duty %r fails: %s", name, tally.error)
    return tally
