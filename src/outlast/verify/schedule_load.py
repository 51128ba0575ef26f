"""Schedules under test: one for each pair of policies, handlers that record their runs, and an
operator who pauses, resumes, changes, skips, runs and backfills."""

from __future__ import annotations

import asyncio
import faulthandler
import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from ..model.schedule import MISSED, OVERLAP, ScheduleSpec
from ..model.schedule_state import Schedule
from ..worker.context import Context
from .load import EXPECTED_ERRORS, Gate

if TYPE_CHECKING:
    from .workload import Workload

EVERY_SECOND: tuple[dict[str, Any], ...] = ({"every": 1.0}, {"cron": "* * * * * *"})
EVERY_FIVE: tuple[dict[str, Any], ...] = ({"every": 5.0}, {"cron": "*/5 * * * * *"})
CHANGES = (*EVERY_SECOND, {"every": 2.0}, {"cron": "*/2 * * * * *"})  # made by the operator
GRACE_S = 3.0  # with missed="none": less than the period, so that a late tick is skipped
NAPS_S = {"allow": (0.0, 0.3), "skip": (0.0, 1.6), "queue": (0.0, 1.6), "cancel": (30.0, 30.0)}
CALL_RANGE_S = (0.5, 1.5)  # seconds between calls of the operator
RETRY_PAUSE_S = 0.2
HANDLED_SHARE = 0.6  # of calls about a schedule that the operator may pause and change
BACKFILL_S = 12.0
HANDLED_POLICIES = (("all", "allow"), ("once", "allow"), ("all", "skip"), ("once", "queue"),
                    ("all", "queue"), ("once", "cancel"))  # fmt: skip


@dataclass(frozen=True, slots=True)
class PlannedSchedule:
    """A schedule of the campaign. The operator does not change the ticks of a `steady` one."""

    name: str
    options: dict[str, Any]
    steady: bool
    in_code: bool  # declared in code, not created at run time

    @property
    def spec(self) -> ScheduleSpec:
        return ScheduleSpec.of(self.options)


def planned_schedules() -> list[PlannedSchedule]:
    pairs = [(missed, overlap) for missed in MISSED for overlap in OVERLAP]
    steady = [
        PlannedSchedule(f"{missed}-{overlap}", _options(missed, overlap, n), True, n % 3 > 0)
        for n, (missed, overlap) in enumerate(pairs)
    ]
    return steady + [
        PlannedSchedule(
            f"handled-{missed}-{overlap}", _options(missed, overlap, n), False, n % 2 > 0
        )
        for n, (missed, overlap) in enumerate(HANDLED_POLICIES)
    ]


def _options(missed: str, overlap: str, number: int) -> dict[str, object]:
    times = (EVERY_FIVE if missed == "none" else EVERY_SECOND)[number % 2]
    return {**times, "missed": missed, "overlap": overlap, "grace": GRACE_S}


class ScheduleTasks:
    """The task of all schedules; each has a queue of its own name."""

    def __init__(self, work: Workload, gate: Gate, planned: list[PlannedSchedule]) -> None:
        ol = work.ol

        @ol.task(max_crashes=1000)
        async def ticked(ctx: Context, schedule: str) -> dict[str, int]:
            about = [schedule, ctx.job.key]
            work.ledger.write("began", ctx.job.id, ctx.fence)
            work.ledger.write("entered", ctx.job.id, ctx.fence, about)
            try:
                until = time.monotonic() + random.uniform(*NAPS_S[schedule.rpartition("-")[2]])
                while (left := until - time.monotonic()) > 0 and gate.state != Gate.SHUT:  # noqa: ASYNC110
                    await asyncio.sleep(min(left, 0.2))
            finally:
                work.ledger.write("left", ctx.job.id, ctx.fence, about)
            return {"fence": ctx.fence}

        self.ticked = ticked
        for one in planned:
            if one.in_code:
                ol.schedule(one.name, self.call(one), **one.options)

    def call(self, one: PlannedSchedule) -> Any:
        return self.ticked.using(queue=one.name).job(one.name)


class ScheduleOperator:
    """An operator whose calls are recorded before they are made and after they returned."""

    def __init__(
        self, work: Workload, tasks: ScheduleTasks, planned: list[PlannedSchedule],
        rng: random.Random, gate: Gate,
    ) -> None:  # fmt: skip
        self.work, self.tasks, self.rng, self.gate = work, tasks, rng, gate
        self.planned = {one.name: one for one in planned}
        self.paused: set[str] = set()

    def create_all(self) -> None:
        """Create the schedules; the first worker announces those of code."""
        for one in self.planned.values():
            if not one.in_code:
                self._call(one.name, "create", partial(self._create, one))
        while missing := set(self.planned) - set(self._stand()):
            if self.gate.state == Gate.SHUT:
                raise RuntimeError(f"never announced: {', '.join(sorted(missing))}")
            time.sleep(RETRY_PAUSE_S)
        for one in self.planned.values():
            self._write(one.name, "stands", "done", one.spec.as_json())

    def act(self) -> None:
        """Make one call about one schedule."""
        handled = self.rng.random() < HANDLED_SHARE
        one = self.rng.choice([p for p in self.planned.values() if p.steady != handled])
        actions = [self.run, self.backfill]
        if handled:
            actions += [self.pause, self.pause, self.skip, self.change, self.change, self.reset]
        action = self.resume if one.name in self.paused else self.rng.choice(actions)
        action(one)

    def pause(self, one: PlannedSchedule) -> None:
        self._call(one.name, "pause", lambda: self.work.ol.pause_schedule(one.name, "verify"))
        self.paused.add(one.name)

    def resume(self, one: PlannedSchedule) -> None:
        self._call(one.name, "resume", lambda: self.work.ol.resume_schedule(one.name))
        self.paused.discard(one.name)

    def skip(self, one: PlannedSchedule) -> None:
        n = self.rng.randint(1, 3)
        self._call(one.name, "skip", lambda: self.work.ol.skip_schedule(one.name, n), n=n)

    def change(self, one: PlannedSchedule) -> None:
        times = self.rng.choice(CHANGES)
        self._call(one.name, "change", lambda: self.work.ol.change_schedule(one.name, **times))

    def reset(self, one: PlannedSchedule) -> None:
        self._call(one.name, "reset", lambda: self.work.ol.reset_schedule(one.name))

    def run(self, one: PlannedSchedule) -> None:
        job = self._call(one.name, "run", lambda: self.work.ol.run_schedule(one.name))
        self.work.ledger.write("promised", job.id, 0, ["succeeded", "cancelled"])

    def backfill(self, one: PlannedSchedule) -> None:
        """Backfill ticks, most of which have a job already."""
        stands = self._stand()[one.name]
        end = stands.next_at or stands.last_tick
        if end is None or one.name.endswith("-cancel"):
            return
        start = end - timedelta(seconds=BACKFILL_S)
        made = self._call(
            one.name, "backfill", lambda: self.work.ol.backfill_schedule(one.name, start, end),
            start=start.timestamp(), end=end.timestamp(),
        )  # fmt: skip
        for job in made:
            self.work.ledger.write("promised", job.id, 0, ["succeeded"])

    def pause_all(self) -> None:
        for one in self.planned.values():
            if one.name not in self.paused:
                self.pause(one)

    def _create(self, one: PlannedSchedule) -> Any:
        with suppress(Exception):  # the response of an earlier try was lost, or this one is refused
            if one.name in self._stand():
                return None
        return self.work.ol.create_schedule(one.name, self.tasks.call(one), **one.options)

    def _stand(self) -> dict[str, Schedule]:
        return {one.name: one for one in self.work.ol.schedules()}

    def _call(self, name: str, action: str, call: Callable[[], Any], **facts: object) -> Any:
        """Make a call, and record it before and after: its effect is uncertain in between."""
        self._write(name, action, "asked", facts)
        while True:
            try:
                answer = call()
            except EXPECTED_ERRORS:
                time.sleep(RETRY_PAUSE_S)
                continue
            self._write(name, action, "done", facts | _answer(answer))
            return answer

    def _write(self, name: str, action: str, stage: str, facts: dict[str, Any]) -> None:
        self.work.ledger.write("schedule", name, 0, [action, stage, facts])


def _answer(answer: object) -> dict[str, object]:
    if isinstance(answer, Schedule):
        spec = {name: getattr(answer, name) for name in ScheduleSpec().as_json()}
        return {**spec, "next": _seconds(answer.next_at)}
    return {}


def _seconds(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()


def run_schedule_operator(
    work: Workload, tasks: ScheduleTasks, planned: list[PlannedSchedule], gate: Gate, seed: int,
    number: int,
) -> None:  # fmt: skip
    """In a child: act until the gate is closed, then pause all schedules."""
    faulthandler.cancel_dump_traceback_later()
    rng = random.Random(f"{seed} {number}")
    operator = ScheduleOperator(work, tasks, planned, rng, gate)
    operator.create_all()
    while gate.state != Gate.SHUT:
        time.sleep(rng.uniform(*CALL_RANGE_S))
        operator.act()
    operator.pause_all()
    work.ol.close()
