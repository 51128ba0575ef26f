"""`outlast verify clock`: the database's clock steps by an hour, and foreign locks block tables.

hold      workers run jobs that do not end; half of them have a timeout of half an hour
step      the clock jumps an hour ahead or back, at a random time
lock      another program holds a write lock for a lease and four seconds
settle    the jobs may end, and all must succeed; the checker verifies that every job started once,
          and that no owner lost one

PostgreSQL runs under libfaketime, and workers have a correct clock, as on other machines. SQLite
has no server: all processes run under libfaketime, as on one machine.
"""

from __future__ import annotations

import json
import random
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from ...model.settings import WorkerSettings
from ..checks.judge import STALL_LIMIT_S
from ..children import ChildExit
from ..faults.faketime import SteppedClock, library, own_clock, remove
from ..faults.own_postgres import OwnDatabase, OwnPostgres
from ..results import CampaignResults
from ..worker_settings import CampaignWorkerOptions
from ..workload import Workload
from ..workspace import TEMPORARY_FILE, Workspace
from .campaign import CampaignOptions
from .long_campaign import LongCampaign, run_worker

HOUR_S = 3600
LEASE_S = WorkerSettings().lease  # seconds: the default
DEFAULT_JOBS = 200
DEFAULT_STEPS = 20
PAUSE_RANGE_S = (0.3, 6.0)  # seconds between faults: before and after the next renewal
LOCK_BEYOND_LEASE_S = 4.0  # seconds by which a lock outlasts the lease
HALF_HOUR_S = 1800.0
BEGIN_WITHIN_S = 60.0

OnProgress = Callable[[CampaignResults], None]


class ClockSteps(LongCampaign):
    name = "clock"
    columns = ("steps", "locks", "lost_owners")
    goal = "steps"
    workers_at_work = 4
    timings: ClassVar[CampaignWorkerOptions] = {"grace": 5.0}

    clock: SteppedClock

    def __init__(
        self,
        options: CampaignOptions,
        on_progress: OnProgress = lambda _: None,
        *,
        locks: int = 0,
        jobs: int = DEFAULT_JOBS,
        database: OwnDatabase | None = None,
    ) -> None:
        super().__init__(options, on_progress, database=database)
        self.locks, self.jobs = locks, jobs

    def drive(self) -> None:
        self.rng = random.Random(self.seed)
        self.begun: Counter[str] = Counter()
        number = self.options.at_once or self.workers_at_work
        concurrency = -(-self.jobs // number) + 8
        settings: CampaignWorkerOptions = {**self.timings, "concurrency": concurrency}
        self.workers = self.process_group("worker", partial(run_worker, self.work, settings))
        self.workers.start_missing(number)
        self.children.run_all(partial(enqueue_held, self.work, self.jobs))
        if not self.wait_for(self._all_begun, BEGIN_WITHIN_S):
            message = f"I2 stalled-net: {len(self.begun)} of {self.jobs} jobs began"
            self.results.add_violation("start", "start", message)
        self._inject_faults()
        self.workspace.release_file.touch()
        self.wait_for(self._settled, STALL_LIMIT_S)
        self.clock.set(0)
        for pid in list(self.workers.running):
            self.workers.terminate(pid)
        self.wait_for_exit(self.workers)
        self.children.run_all(partial(count_charges, self.work, self.workspace))
        self.results.facts |= json.loads(self.workspace.charges_file.read_text())

    def _inject_faults(self) -> None:
        """Inject steps and locks in random order, until there are enough of both."""
        kinds = [self._step_clock] * (self.options.points or DEFAULT_STEPS) + [
            self._lock_tables
        ] * self.locks
        self.rng.shuffle(kinds)
        for fault in kinds:
            if self.options.first and self.results.violations:
                return
            fault()
            pause = time.monotonic() + self.rng.uniform(*PAUSE_RANGE_S)
            while time.monotonic() < pause:
                self._read_ledger()
        self.points_started += 1

    def _step_clock(self) -> None:
        ahead = self.rng.random() < 0.5
        self.clock.step(HOUR_S if ahead else -HOUR_S)
        self.results.counts_of("an hour ahead" if ahead else "an hour back").add("steps")

    def _lock_tables(self) -> None:
        ends: list[ChildExit] = []
        lock = partial(hold_lock, self.workspace, LEASE_S + LOCK_BEYOND_LEASE_S)
        self.children.start(lock, ends.append)
        while not ends:
            self._read_ledger()
        self.results.counts_of("lock").add("locks")
        if not ends[0].ok:
            self.results.add_violation("lock", "lock", self.children.stderr_tail())

    def _read_ledger(self) -> None:
        """Read the ledger: a job that starts again was reclaimed from a live owner."""
        self.poll()
        for entry in list(self.tail.read()):
            if entry.kind == "began":
                self.begun[entry.subject] += 1
                if entry.fence > 1:
                    self.results.counts_of("owner").add("lost_owners")
                    self.work.ledger.write("robbed", entry.subject, entry.fence - 1)

    def _all_begun(self) -> bool:
        self._read_ledger()
        return len(self.begun) >= self.jobs

    def _settled(self) -> bool:
        self._read_ledger()
        self.children.run_all(partial(count_charges, self.work, self.workspace))
        return not json.loads(self.workspace.charges_file.read_text())["running"]


class ClockStepsSqlite(ClockSteps):
    """The campaign on SQLite: the clock of all processes steps."""

    def __init__(
        self, options: CampaignOptions, on_progress: OnProgress = lambda _: None, **overrides: Any
    ) -> None:
        self.clock = own_clock()
        super().__init__(options, on_progress, **overrides)
        self.results.url = TEMPORARY_FILE

    def clean_up(self) -> None:
        super().clean_up()
        remove(self.clock)


class SteppedServer(OwnPostgres):
    """A server that runs under libfaketime."""

    clock: SteppedClock

    def make(self) -> None:
        library()  # raises before anything is created
        super().make()
        self.clock = SteppedClock(self.folder / "clock")
        self.environment = self.clock.environment


class ClockStepsPostgres(ClockSteps):
    """The campaign on PostgreSQL: only the server's clock steps."""

    def __init__(
        self, options: CampaignOptions, on_progress: OnProgress = lambda _: None, **overrides: Any
    ) -> None:
        self.server = SteppedServer("clock")
        super().__init__(options, on_progress, database=self.server, **overrides)

    def drive(self) -> None:
        self.clock = self.server.clock
        super().drive()

    def _lock_tables(self) -> None:
        """Lock the tables with the clock stepped back: while it is ahead of the machine's,
        libfaketime keeps the server's timeouts from firing, which reveal owners of a lock."""
        if self.clock.offset > 0:
            self.clock.set(0)
            self.results.counts_of("an hour back").add("steps")
        super()._lock_tables()


def enqueue_held(work: Workload, number: int) -> None:
    """In a child: enqueue jobs that run until they may end; every other one has a timeout."""
    calls = [work.holds.using(timeout=HALF_HOUR_S if n % 2 else None).job() for n in range(number)]
    for job in work.ol.enqueue(*calls):
        work.ledger.write("promised", job.id, 0, ["succeeded"])
    work.ol.close()


def hold_lock(workspace: Workspace, seconds: float) -> None:
    """In a child: lock the tables against all writers."""
    if workspace.is_sqlite:
        path = workspace.url.removeprefix("sqlite:///")
        with closing(sqlite3.connect(path, timeout=30.0, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            time.sleep(seconds)
            connection.execute("COMMIT")
        return
    import psycopg
    from psycopg import sql

    with psycopg.connect(workspace.url) as connection:
        job = sql.Identifier(workspace.schema, "job")
        connection.execute(sql.SQL("LOCK TABLE {} IN EXCLUSIVE MODE").format(job))
        time.sleep(seconds)


def count_charges(work: Workload, workspace: Workspace) -> None:
    """In a child: read how many crashes and failures the jobs were charged so far."""
    jobs = list(work.ol.jobs(limit=100_000))
    charges = {
        "running": sum(not job.final for job in jobs),
        "crashes": sum(job.crashes for job in jobs),
        "failures": sum(job.failures for job in jobs),
        "claims": sum(job.fence for job in jobs),
        "dead": sum(job.state == "dead" for job in jobs),
    }
    work.ol.close()
    written = Path(f"{workspace.charges_file}.new")
    written.write_text(json.dumps(charges))
    written.replace(workspace.charges_file)
