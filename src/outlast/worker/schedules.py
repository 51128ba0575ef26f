"""Schedule firer: fires due schedules of this worker's tasks. There is no leader: a schedule fires
once because its row advances only once.

While no schedule is due, no query is sent: the poll for lost claims also returns the first due one.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..loops import Loop
from ..model.safe_text import error_summary
from ..model.schedule_state import ScheduleDefinition
from ..ops.announce import announce, reannounce
from ..ops.enqueue import CANCEL_SIGNAL
from ..ops.fire import FIRE_BATCH, FireResult, break_schedule, fire_due, next_due
from ..ops.rewind import rewind
from ..store import Store
from .row_errors import RowSuspicion
from .state import WorkerState

if TYPE_CHECKING:
    from .maintenance import Signals

log = logging.getLogger("outlast.worker")

ANNOUNCE_INTERVAL_S = 6 * 3600.0  # between announcements of a long-running worker
CLOCK_STEP_S = 2.0  # backward step of the database's clock; less may be a slow response
FOREIGN_INTERVAL_S = 15.0  # between checks while the first due schedule is of an unknown task


@dataclass(frozen=True, slots=True)
class KnownSchedules:
    """The schedules and tasks of a process."""

    tasks: Callable[[], Sequence[str]]  # tasks whose schedules it may fire
    declared: Callable[[], Mapping[str, ScheduleDefinition]]  # by its code


NO_SCHEDULES = KnownSchedules(tuple, dict)


class ScheduleFirer:
    def __init__(
        self,
        store: Store,
        state: WorkerState,
        signals: Signals,
        counts: Counter[str],
        known: KnownSchedules,
    ) -> None:
        self._store = store
        self._state = state
        self._signals = signals
        self._counts = counts
        self._known = known
        self._announced: dict[str, ScheduleDefinition] = {}
        self._announce_at = -math.inf  # next announcement without changes
        self._suspicion = RowSuspicion()
        self._due_at: float | None = None  # of the first due schedule, as last seen
        self._foreign: float | None = None  # the same, if all due ones were of unknown tasks
        self._check_again_at = -math.inf  # next check without changes
        self._clock_offset = -math.inf  # database clock minus monotonic clock
        self._clock_was_ahead = True  # assumed until this worker has checked
        self.loop = Loop("schedules", self.run_once, ANNOUNCE_INTERVAL_S)

    def observe(self, due_at: float | None, clock: float) -> None:
        """Note when the first schedule became due, and the database's time."""
        self._due_at = due_at
        before, self._clock_offset = self._clock_offset, clock - time.monotonic()
        if self._clock_offset < before - CLOCK_STEP_S:
            self._clock_was_ahead = True
            self.loop.trigger()
        if due_at is None:
            self._foreign = None
        elif due_at != self._foreign or time.monotonic() >= self._check_again_at:
            self.loop.trigger()

    async def run_once(self) -> None:
        await self.announce()
        if self._clock_was_ahead:
            await self.rewind()
            self._clock_was_ahead = False
        due_at, tasks = self._due_at, list(self._known.tasks())
        if due_at is not None and tasks:
            result = await self.fire(tasks)
            if not result.found:
                await self._leave_to_others(due_at, tasks)

    async def announce(self) -> None:
        """Announce declared schedules, again after changes: code may declare them at any time."""
        declared = dict(self._known.declared())
        if declared == self._announced:
            if declared and time.monotonic() >= self._announce_at:
                await self._store.arun(reannounce, sorted(declared))
                self._announce_at = time.monotonic() + ANNOUNCE_INTERVAL_S / 2
            return
        done = await self._store.arun(announce, list(declared.values()))
        self._announced = declared
        self._announce_at = time.monotonic() + ANNOUNCE_INTERVAL_S / 2
        for name in done.added:
            log.info("schedule %s: added", name)
        for name in done.changed:
            log.info("schedule %s: changed to what code declares", name)

    async def rewind(self) -> None:
        """Rewind schedules that fired by a clock that was ahead."""
        after: str | None = ""
        while after is not None and not self._state.stopping:
            rewound, after = await self._store.arun(rewind, after)
            for name in rewound:
                log.warning("schedule %s: set back, because the clock was ahead", name)

    async def fire(self, tasks: Sequence[str]) -> FireResult:
        """Fire all due schedules. A failing batch is halved until the faulty schedule is found,
        which is marked with its error; the others continue."""
        total, size = FireResult(), FIRE_BATCH
        while not self._state.stopping:
            tried: list[str] = []
            try:
                result = await self._store.arun(fire_due, tasks, size, tried)
            except Exception as error:
                if not self._suspicion.blames_row(error):
                    raise
                if size == 1 and tried:
                    await self._break(tried[0], error)
                size = max(1, size // 2)
                continue
            self._suspicion.clear()
            self._report(result)
            total.add(result)
            if result.found < size:
                break
            size = min(FIRE_BATCH, size * 2)
        return total

    async def _break(self, name: str, error: Exception) -> None:
        await self._store.arun(break_schedule, name, error_summary(error))
        log.error("schedule %s cannot be fired: %s", name, error)

    def _report(self, result: FireResult) -> None:
        self._counts["schedules_fired"] += result.fired
        self._counts["schedules_missed"] += result.missed
        self._counts["schedules_skipped"] += result.skipped
        self._counts["schedules_late"] += result.late
        for name, why in result.broken.items():
            log.error("schedule %s cannot be fired: %s", name, why)
        if result.queues:
            self._signals.ready(result.queues)
        if result.cancelled:
            self._signals.cancelled()
            self._signals.notify({CANCEL_SIGNAL})

    async def _leave_to_others(self, due_at: float, tasks: Sequence[str]) -> None:
        """Only schedules of unknown tasks are due, so the poll shows nothing about this worker's:
        check again when the next of its own is due, and at intervals for new ones."""
        own_at, now = await self._store.arun(next_due, tasks)
        wait = FOREIGN_INTERVAL_S if own_at is None else min(FOREIGN_INTERVAL_S, own_at - now)
        self._foreign, self._check_again_at = due_at, time.monotonic() + max(0.0, wait)
