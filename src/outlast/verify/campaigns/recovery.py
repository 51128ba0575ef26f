"""`outlast verify recovery`: from the SIGKILL of a worker until its jobs run on another one.

hold      a few workers, with default settings, run long jobs
kill      one with running jobs dies by SIGKILL, at a random time
measure   the time until another one has started the last of its jobs, by the ledger; no worker is
          started before that, because a new one reclaims at once
settle    at the end the other workers are killed, too, and the jobs are checked
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from ...model.settings import WorkerSettings
from ...model.worker_names import remote_id
from ...ops import workers as worker_ops
from ..checks.judge import STALL_LIMIT_S
from ..ledger import LedgerEntry
from ..results import CampaignResults
from ..workload import Workload
from .campaign import CampaignOptions
from .long_campaign import LongCampaign, run_worker

DEFAULT_WORKERS = 4
JOBS_PER_WORKER = 3
JOB_LENGTH_S = 86400.0  # seconds: longer than any worker lives
SLACK_S = 2.0  # maximum seconds after the lease until a job runs again
PAUSE_RANGE_S = (0.2, 0.9)  # seconds before the next kill: a random phase of the other workers
MOVE_ON_AFTER_S = 2.0  # seconds after which the campaign continues, and kills another worker
REGISTER_INTERVAL_S = 30.0  # for remote workers, whose registrations are valid for a minute
MAX_OPEN_KILLS = 8  # kills whose jobs are awaited


@dataclass(slots=True)
class Kill:
    pid: int
    at: float
    jobs: set[str]  # of its jobs, those that have not started again
    lost: int = 0
    slowest: float = 0.0
    replaced: bool = False


@dataclass(slots=True)
class HeldJobs:
    """The jobs that each process has started, by the ledger."""

    held: dict[int, set[str]] = field(default_factory=dict)
    kills: list[Kill] = field(default_factory=list)
    promised: set[str] = field(default_factory=set)
    begun: set[str] = field(default_factory=set)

    def record(self, entry: LedgerEntry) -> None:
        if entry.kind != "began":
            self.promised.add(entry.subject)
            return
        self.begun.add(entry.subject)
        killed = next((kill for kill in self.kills if kill.pid == entry.pid), None)
        if killed:
            killed.jobs.add(entry.subject)  # written just before its death
            return
        for kill in self.kills:
            if entry.subject in kill.jobs:
                kill.jobs.discard(entry.subject)
                kill.slowest = max(kill.slowest, entry.at - kill.at)
        if entry.fence == 1:
            self.held.setdefault(entry.pid, set()).add(entry.subject)


class RecoveryCampaign(LongCampaign):
    name = "recovery"
    columns = ("kills", "restarted")
    goal = "kills"

    def __init__(
        self,
        options: CampaignOptions,
        on_progress: Callable[[CampaignResults], None] = lambda _: None,
        *,
        remote: int = 0,
    ) -> None:
        super().__init__(options, on_progress)
        self.remote = remote  # registered workers that never reclaim
        self._registered_at = -REGISTER_INTERVAL_S

    def drive(self) -> None:
        self.rng = random.Random(self.seed)
        self.held_jobs = HeldJobs()
        self.limit = WorkerSettings.of().lease + SLACK_S
        self.measured = self.results.spans.setdefault("recovery", [])
        self.workers = self.process_group("worker", partial(run_worker, self.work, {}))
        number = self.options.at_once or DEFAULT_WORKERS
        self.workers.start_missing(number)
        for _ in range(number):
            self._enqueue_jobs(JOBS_PER_WORKER)
        self._next_kill_at = self._killed_at = time.monotonic()
        while not self.is_over() or self.held_jobs.kills:
            self.poll()
            self._check_kills()
            self._register_remote()
            if not self.is_over() and time.monotonic() >= self._next_kill_at:
                self._kill_one()
        self.wait_for(self._all_begun, STALL_LIMIT_S)
        for pid in list(self.workers.running):
            self.workers.kill(pid)
        self.wait_for_exit(self.workers)

    def _register_remote(self) -> None:
        """Refresh the registrations of remote workers."""
        now = time.monotonic()
        if self.remote and now - self._registered_at >= REGISTER_INTERVAL_S:
            self._registered_at = now
            self.children.start(partial(register, self.work, self.remote), self._prepared)

    def _all_begun(self) -> bool:
        """Whether all jobs have begun."""
        self._check_kills()
        return self.held_jobs.promised <= self.held_jobs.begun

    def _check_kills(self) -> None:
        for entry in self.tail.read():
            self.held_jobs.record(entry)
        now = time.monotonic()
        for kill in list(self.held_jobs.kills):
            if not kill.jobs:
                self._restarted(kill)
            elif now - kill.at > self.limit:
                self._overdue(kill)
            elif now - kill.at > MOVE_ON_AFTER_S:
                self._replace(kill)

    def _kill_one(self) -> None:
        """Kill a worker with jobs, unless too many kills are awaited already."""
        now, waiting = time.monotonic(), len(self.held_jobs.kills)
        if waiting and (now - self._killed_at < MOVE_ON_AFTER_S or waiting >= MAX_OPEN_KILLS):
            return
        victims = sorted(pid for pid in self.workers.running if self.held_jobs.held.get(pid))
        if not victims or len(self.workers) < 2:
            return
        pid = self.rng.choice(victims)
        jobs = self.held_jobs.held.pop(pid)
        self._killed_at = time.monotonic()
        self.workers.kill(pid)
        self.held_jobs.kills.append(Kill(pid, self._killed_at, jobs, len(jobs)))
        self.points_started += 1
        self.results.counts_of(self.name).add("kills")

    def _restarted(self, kill: Kill) -> None:
        self.held_jobs.kills.remove(kill)
        self.measured.append(kill.slowest)
        if kill.slowest > self.limit:
            self._report_late(f"a job of worker {kill.pid} ran again after {kill.slowest:.1f} s")
        self.results.counts_of(self.name).add("restarted", kill.lost)
        self._replace(kill)
        self._next_kill_at = time.monotonic() + self.rng.uniform(*PAUSE_RANGE_S)

    def _overdue(self, kill: Kill) -> None:
        self.held_jobs.kills.remove(kill)
        for job in sorted(kill.jobs):
            self._report_late(
                f"{job}: not running again {self.limit:g} s after worker {kill.pid} died"
            )
        self._replace(kill)

    def _report_late(self, message: str) -> None:
        self.results.add_violation("recovery", self.name, f"I2 owner-dead: {message}")

    def _replace(self, kill: Kill) -> None:
        if not kill.replaced:
            kill.replaced = True
            self.workers.start_missing(len(self.workers) + 1)
            if not self.is_over():
                self._enqueue_jobs(kill.lost)

    def _enqueue_jobs(self, number: int) -> None:
        self.children.start(partial(enqueue_held, self.work, number), self._prepared)


def register(work: Workload, number: int) -> None:
    """In a child: register remote workers."""
    registration = work.ol.worker().registration_row()
    for n in range(number):
        work.ol.store.run(worker_ops.register, registration | {"id": remote_id("verify", str(n))})
    work.ol.close()


def enqueue_held(work: Workload, number: int) -> None:
    """In a child: enqueue long jobs."""
    for job in work.ol.enqueue(*[work.naps.job(seconds=JOB_LENGTH_S) for _ in range(number)]):
        work.ledger.write("promised", job.id, 0, ["succeeded"])
    work.ol.close()
