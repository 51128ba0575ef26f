"""`outlast verify lanes`: limits, order and turns, while workers are killed and limits are changed.

enqueue   an enqueuer adds jobs to lanes of four queues: one with a limit for the whole queue, one
          with 1,000 lanes, one with three, and one that runs in order
work      worker processes run them; one is killed every second
change    an operator changes the limits every five seconds, those of a lane between 1 and 3
hold      (optional) one transaction holds an old snapshot all the time (PostgreSQL)
settle    the remaining jobs end; the history shows whether a limit was exceeded, an order was not
          kept, or jobs waited although there was room
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial

from ...model.errors import InvalidOption
from ..checks.judge import STALL_LIMIT_S
from ..checks.kill_times import KillTimes
from ..checks.lanes import judge_lanes
from ..graph_load import wait_until_idle
from ..lane_load import LaneTasks, run_lane_load, run_limiter
from ..load import Gate
from ..old_snapshot import hold_snapshot
from ..results import CampaignResults
from ..scenarios import Scenario
from ..worker_settings import CampaignWorkerOptions
from .campaign import CampaignOptions
from .long_campaign import LongCampaign, run_worker

KILL_INTERVAL_S = 1.0
WORKERS = 4
# With this concurrency a worker claims ahead.
WORKER_SETTINGS: CampaignWorkerOptions = {"poll_max": 0.2, "grace": 5.0, "concurrency": 12}


class LaneCampaign(LongCampaign):
    name = "lanes"
    columns = ("runs", "kills", "changes")
    goal = "runs"

    def __init__(
        self,
        options: CampaignOptions,
        on_progress: Callable[[CampaignResults], None] = lambda _: None,
        *,
        old_snapshot: bool = False,
    ) -> None:
        super().__init__(options, on_progress)
        self.old_snapshot = old_snapshot
        if old_snapshot and self.workspaces.is_sqlite:
            raise InvalidOption(option="--old-snapshot", reason="is for PostgreSQL")

    def drive(self) -> None:
        self.rng, self.gate = random.Random(self.seed), Gate()
        self.kills = KillTimes()
        tasks = LaneTasks(self.work)
        self.workers = self.process_group("worker", partial(run_worker, self.work, WORKER_SETTINGS))
        self.loaders = self.process_group(
            "enqueuer", partial(run_lane_load, self.work, tasks, self.gate, self.seed)
        )
        self.limiters = self.process_group(
            "operator", partial(run_limiter, self.work, self.gate, self.seed)
        )
        self.holders = self.process_group(
            "holder", partial(hold_snapshot, self.workspaces.address.url)
        )
        if self.old_snapshot:
            self.holders.start_missing(1)
        self._kill_at = time.monotonic() + KILL_INTERVAL_S
        self.loaders.start_missing(1)
        self.limiters.start_missing(1)
        while not self.is_over():
            self._poll_once()
        self._drain()

    def _poll_once(self) -> None:
        """Count the entries of the ledger, and keep killing workers."""
        self.poll()
        self.workers.start_missing(self.options.at_once or WORKERS)
        for entry in self.tail.read():
            if entry.kind == "left":
                self.results.counts_of(entry.data[0]).add("runs")
                self.points_started += 1
                self.workers.saw_working(entry.pid)
            elif entry.kind == "limits" and entry.data[2] == "changed":
                self.results.counts_of("limits").add("changes")
        if time.monotonic() >= self._kill_at:
            if pid := self.workers.victim(self.rng):
                self.kills.record(pid, time.monotonic())
                self.workers.kill(pid)
                self.results.counts_of("workers").add("kills")
            self._kill_at += KILL_INTERVAL_S

    def _drain(self) -> None:
        """Stop enqueueing, and kill workers until all jobs have ended."""
        ending = (self.loaders, self.limiters)
        for group in ending:
            group.expect_exit()
        self.gate.set(Gate.SHUT)
        for group in ending:
            self.wait_for_exit(group)
        ends: list[object] = []
        self.children.start(partial(wait_until_idle, self.work, STALL_LIMIT_S), ends.append)
        while not ends:
            self._poll_once()
        for pid in list(self.workers.running):  # all jobs have ended: nothing is left to release
            self.workers.kill(pid)
        for pid in list(self.holders.running):
            self.holders.terminate(pid)
        self.wait_for_exit(self.workers, self.holders)

    def _judge(self) -> None:
        super()._judge()
        for wrong in judge_lanes(self.work.ledger.read(), self.kills):
            self.results.add_violation(self.name, self.name, wrong)

    def _selected_scenarios(self) -> list[Scenario]:
        if self.options.paths:
            raise InvalidOption(option="path", reason="does not apply to this campaign")
        return []
