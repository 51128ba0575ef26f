"""Inline leases: a drain renews and does maintenance between its steps, without a heartbeat
thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..loops import Loop
from ..ops import duties
from ..ops.operation import Op
from ..ops.reclaim import ReclaimResult, signs_of_loss
from ..ops.renew import renew
from ..store import Store
from ..worker.maintenance import AppParts, Maintenance, Outcomes, Signals
from ..worker.registration import Registration
from ..worker.runner import JobRunner
from ..worker.shared import WorkerShared

if TYPE_CHECKING:
    from ..client.client import Outlast
    from ..worker.local import SourceCallbacks
    from ..worker.protocols import HeartbeatListener


@dataclass
class InlineLeases:
    """Leases are long, and a drain moves the clock only while nothing runs: none of them expires.
    Renewals serve to receive cancel requests."""

    store: Store
    shared: WorkerShared
    runner: JobRunner
    maintenance: Maintenance
    loops: Sequence[Loop] = ()
    started: bool = True
    alive: bool = True
    watchdog_at: float = 0.0

    async def heartbeat(self) -> None:
        """One renewal, which receives cancel requests, and one pass of maintenance: cancelled
        flows, late prerequisites, waits that are over, expiry and schedules."""
        if fences := self.shared.in_flight.fences():
            state = self.shared.state
            renewed = await self.store.arun(renew, state.id, fences, state.settings.lease)
            self.runner.renewed(renewed, fences)
        signs = await self.store.arun(signs_of_loss)
        if signs.flows or signs.cancels or signs.unlinked:
            await self.maintenance.flow_maintenance.run_once()
        if signs.waits:
            await self.maintenance.wait_maintenance.run_once()
        if signs.expired:
            await self.maintenance.sweeper.sweep(_expire)
        firer = self.maintenance.firer
        firer.observe(signs.schedule_due, signs.clock)
        await firer.run_once()

    def start(self, listener: HeartbeatListener) -> None:
        pass

    def renew_now(self) -> None:
        pass

    def retry_failed(self) -> None:
        pass

    def notify(self, queues: set[str]) -> None:
        pass

    def quiesce(self) -> None:
        pass

    def quiesce_now(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def join(self) -> None:
        pass


def inline_leases(
    app: Outlast,
    registration: Registration,
    shared: WorkerShared,
    runner: JobRunner,
    outcomes: Outcomes,
    source: SourceCallbacks,
) -> InlineLeases:
    signals = Signals(
        poll=_ignore, ready=source.became_ready, notify=_ignore_queues, cancelled=_ignore
    )
    parts = AppParts(app.retention, app.blobs, source.schedules)
    maintenance = Maintenance(app.store, shared, outcomes, signals, parts)
    return InlineLeases(app.store, shared, runner, maintenance)


def _ignore() -> None:
    """A drain checks by itself after each pass."""


def _ignore_queues(queues: set[str]) -> None:
    """There are no other workers."""


def _expire(limit: int, skip: int) -> Op[ReclaimResult]:
    expired = yield from duties.expire(limit, skip)
    return ReclaimResult(found=len(expired), healed=len(expired))
