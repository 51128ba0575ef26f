"""`outlast verify schedules`: one job per tick, while workers are killed and the clock steps.

fire      workers fire schedules of every pair of policies, most of them each second
kill      one of them is killed every one to three seconds
operate   an operator pauses, resumes, changes, skips, runs and backfills
step      the database's clock jumps ahead and back again, or back and ahead again
settle    all schedules are paused, their jobs end; the history shows which ticks must have a job

PostgreSQL is a server of its own under libfaketime. SQLite has no server: all processes run under
libfaketime, as on one machine.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ...client.verb_arguments import MAX_ROWS
from ...model.errors import InvalidOption
from ...model.schedule import origin_of_key
from ..checks.judge import STALL_LIMIT_S
from ..checks.kill_times import KillTimes
from ..checks.schedule_history import TickJob
from ..checks.schedules import judge_schedules
from ..faults.faketime import SteppedClock, own_clock, remove
from ..graph_load import wait_until_idle
from ..load import Gate
from ..results import CampaignResults
from ..scenarios import Scenario
from ..schedule_load import (
    PlannedSchedule,
    ScheduleTasks,
    planned_schedules,
    run_schedule_operator,
)
from ..worker_settings import CampaignWorkerOptions
from ..workload import Workload
from ..workspace import TEMPORARY_FILE
from .campaign import CampaignOptions
from .clock import SteppedServer
from .long_campaign import LongCampaign, run_worker

KILL_RANGE_S = (1.0, 3.0)  # seconds between kills
FIRST_STEP_S, WRONG_RANGE_S, RIGHT_RANGE_S = 4.0, (4.0, 8.0), (18.0, 28.0)  # between steps
AHEAD_RANGE_S, BACK_RANGE_S = (35, 60), (3, 15)  # seconds of a step
AHEAD_SHARE = 0.7  # share of steps from the correct time that go ahead
READINGS = 100  # of both clocks
WORKERS = 4
WORKER_SETTINGS: CampaignWorkerOptions = {
    "poll_max": 0.2,
    "reclaim_every": 0.2,
    "grace": 5.0,
    "concurrency": 40,
}
OnProgress = Callable[[CampaignResults], None]


class ScheduleCampaign(LongCampaign):
    name = "schedules"
    columns = ("ticks", "kills", "calls", "steps")
    goal = "ticks"

    clock: SteppedClock

    def drive(self) -> None:
        self.rng, self.gate = random.Random(self.seed), Gate()
        self.kills = KillTimes()
        planned = planned_schedules()
        tasks = ScheduleTasks(self.work, self.gate, planned)
        self._right_time = wall_offset()  # before the first step
        self._tell_offset()
        self.workers = self.process_group("worker", partial(run_worker, self.work, WORKER_SETTINGS))
        operate = partial(run_schedule_operator, self.work, tasks, planned, self.gate, self.seed)
        self.operators = self.process_group("operator", operate)
        self.operators.start_missing(1)
        self._kill_at = time.monotonic() + self.rng.uniform(*KILL_RANGE_S)
        self._step_at = math.inf  # no step until all schedules exist: none has an earlier tick
        while not self.is_over():
            self._poll_once()
            self._step_clock()
        self._drain(planned)

    def _poll_once(self) -> None:
        """Count the entries of the ledger, and keep killing workers."""
        self.poll()
        self.workers.start_missing(self.options.at_once or WORKERS)
        for entry in self.tail.read():
            if entry.kind == "left":
                self.results.counts_of(entry.data[0]).add("ticks")
                self.points_started += 1
                self.workers.saw_working(entry.pid)
            elif entry.kind == "schedule" and entry.data[1] == "done":
                self.results.counts_of(entry.data[0]).add("calls")
                if entry.data[0] == "stands":
                    self._step_at = min(self._step_at, time.monotonic() + FIRST_STEP_S)
        if time.monotonic() >= self._kill_at:
            if pid := self.workers.victim(self.rng):
                self.kills.record(pid, time.monotonic())
                self.workers.kill(pid)
                self.results.counts_of("workers").add("kills")
            self._kill_at = time.monotonic() + self.rng.uniform(*KILL_RANGE_S)

    def _step_clock(self) -> None:
        """Step the clock away from the correct time, the first time ahead, or back to it."""
        if time.monotonic() < self._step_at:
            return
        if self.clock.offset:
            offset, which = 0, "to the correct time"
        elif self.rng.random() < AHEAD_SHARE or not self.results.total("steps"):
            offset, which = self.rng.randint(*AHEAD_RANGE_S), "ahead"
        else:
            offset, which = -self.rng.randint(*BACK_RANGE_S), "back"
        self._set_clock(offset)
        self.results.counts_of(f"clock {which}").add("steps")
        pause = self.rng.uniform(*(WRONG_RANGE_S if offset else RIGHT_RANGE_S))
        self._step_at = time.monotonic() + pause

    def _set_clock(self, offset: int) -> None:
        self.clock.set(offset)
        self._tell_offset()

    def _tell_offset(self) -> None:
        """Record by how much the database's clock is ahead of the monotonic one."""
        self.work.ledger.write("clock", "", 0, self._right_time + self.clock.offset)

    def _drain(self, planned: list[PlannedSchedule]) -> None:
        """Pause the schedules, and kill workers until all jobs have ended. The clock is set ahead
        of every time that it showed, so that no job is due later."""
        self.gate.set(Gate.SHUT)
        self.operators.expect_exit()
        self.wait_for_exit(self.operators)
        self._set_clock(AHEAD_RANGE_S[1] + 1)
        ends: list[object] = []
        self.children.start(partial(wait_until_idle, self.work, STALL_LIMIT_S), ends.append)
        while not ends:
            self._poll_once()
        for pid in list(self.workers.running):  # all jobs have ended: nothing is left to release
            self.workers.kill(pid)
        self.wait_for_exit(self.workers)
        found = self.workspace.folder / "schedules.json"
        names = [one.name for one in planned]
        self.children.run_all(partial(write_findings, self.work, names, self.kills, found))
        for wrong in json.loads(found.read_text()):
            self.results.add_violation(self.name, self.name, wrong)

    def _selected_scenarios(self) -> list[Scenario]:
        if self.options.paths:
            raise InvalidOption(option="path", reason="does not apply to this campaign")
        return []


class ScheduleCampaignSqlite(ScheduleCampaign):
    """The campaign on SQLite: the clock of all processes steps."""

    def __init__(self, options: CampaignOptions, on_progress: OnProgress = lambda _: None) -> None:
        self.clock = own_clock()
        super().__init__(options, on_progress)
        self.results.url = TEMPORARY_FILE

    def clean_up(self) -> None:
        super().clean_up()
        remove(self.clock)


class ScheduleCampaignPostgres(ScheduleCampaign):
    """The campaign on PostgreSQL: only the server's clock steps."""

    def __init__(self, options: CampaignOptions, on_progress: OnProgress = lambda _: None) -> None:
        self.server = SteppedServer("schedules")
        super().__init__(options, on_progress, database=self.server)

    def drive(self) -> None:
        self.clock = self.server.clock
        super().drive()


def wall_offset() -> float:
    """By how much the wall clock is ahead of the monotonic one. On a busy machine a process may be
    preempted between two readings, which lowers the difference: the largest one is correct."""
    return max(time.time() - time.monotonic() for _ in range(READINGS))


def write_findings(work: Workload, schedules: list[str], kills: KillTimes, file: Path) -> None:
    """In a child: check the jobs of these schedules, and write the findings."""
    jobs = [job for name in schedules for job in tick_jobs(work, name)]
    work.ol.close()
    file.write_text(json.dumps(judge_schedules(work.ledger.read(), jobs, kills)))


def tick_jobs(work: Workload, schedule: str) -> list[TickJob]:
    found = []
    for job in work.ol.jobs(queue=schedule, limit=MAX_ROWS):
        origin = origin_of_key(job.key)
        tick = None if origin is None else origin.tick.timestamp()
        manual = origin is not None and origin.manual
        found.append(TickJob(job.id, schedule, tick, manual, job.created_at.timestamp()))
    return found
