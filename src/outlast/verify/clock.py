"""`outlast verify clock`: the database's clock steps by an hour, and strangers lock the tables.

hold      workers run jobs that do not end; half of them have a timeout of half an hour
step      the clock jumps an hour ahead or back, at a random moment
lock      somebody holds a write lock for a lease and four seconds
settle    the jobs may end, all of them succeed, and the judge looks: every job began once, and no
          owner lost one

PostgreSQL is a server of its own under libfaketime; workers have a right clock, as on other
machines. SQLite has no server: all processes run under libfaketime, as on one machine.
"""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from ..model.settings import WorkerSettings
from .campaign import Wish
from .children import Ended
from .faketime import SteppedClock, own_clock, remove
from .figures import Figures
from .lasting import Lasting, work_on
from .place import OWN, TEMPORARY, Place
from .recovery import LONGEST
from .server import Server
from .workload import Workload

AN_HOUR = 3600
LEASE = WorkerSettings().lease  # seconds: as everybody has it
JOBS = 200
STEPS = 20
PAUSE = (0.3, 6.0)  # seconds between faults: before and after the next renewal
LONGER = 4.0  # seconds by which a lock outlasts the lease
HALF_AN_HOUR = 1800.0
BEGIN_WITHIN_S = 60.0

Watch = Callable[[Figures], None]


class ClockSteps(Lasting):
    name = "clock"
    columns = ("steps", "locks", "lost_owners")
    goal = "steps"
    workers_at_work = 4
    timings: ClassVar[dict[str, Any]] = {"grace": 5.0}

    clock: SteppedClock

    def __init__(
        self, wish: Wish, watch: Watch = lambda _: None, *, locks: int = 0, jobs: int = JOBS
    ) -> None:
        super().__init__(wish, watch)
        self.locks, self.jobs = locks, jobs

    def act(self) -> None:
        self.luck = random.Random(self.seed)
        self.begun: Counter[str] = Counter()
        number = self.wish.at_once or self.workers_at_work
        settings = self.timings | {"concurrency": -(-self.jobs // number) + 8}
        self.workers = self.crew("worker", partial(work_on, self.work, settings))
        self.workers.fill(number)
        self.children.call(partial(enqueue_held, self.work, self.jobs))
        if not self.await_(self._all_begun, BEGIN_WITHIN_S):
            told = f"I2 stalled-net: {len(self.begun)} of {self.jobs} jobs began"
            self.figures.complain("start", "start", told)
        self._strike()
        self.here.opened.touch()
        self.await_(self._settled, LONGEST)
        self.clock.set(0)
        for pid in list(self.workers.at_work):
            self.workers.ask_to_go(pid)
        self.dismissed(self.workers)
        self.children.call(partial(count_charges, self.work, self.here))
        self.figures.facts |= json.loads(self.here.charges.read_text())

    def _strike(self) -> None:
        """Steps and locks, in random order, until there is enough of both."""
        kinds = [self._step] * (self.wish.points or STEPS) + [self._lock] * self.locks
        self.luck.shuffle(kinds)
        for strike in kinds:
            if self.wish.first and self.figures.wrong:
                return
            strike()
            pause = time.monotonic() + self.luck.uniform(*PAUSE)
            while time.monotonic() < pause:
                self._hear()
        self.started += 1

    def _step(self) -> None:
        ahead = self.luck.random() < 0.5
        self.clock.step(AN_HOUR if ahead else -AN_HOUR)
        self.figures.row("an hour ahead" if ahead else "an hour back").add("steps")

    def _lock(self) -> None:
        ends: list[Ended] = []
        lock = partial(hold_lock, self.here, LEASE + LONGER)
        self.children.start(lock, ends.append)
        while not ends:
            self._hear()
        self.figures.row("lock").add("locks")
        if not ends[0].well:
            self.figures.complain("lock", "lock", self.children.last_words())

    def _hear(self) -> None:
        """A job that begins again was taken from whoever ran it: all of them live."""
        self.tick()
        for entry in list(self.tail.read()):
            if entry.what == "began":
                self.begun[entry.about] += 1
                if entry.fence > 1:
                    self.figures.row("owner").add("lost_owners")
                    self.work.ledger.write("robbed", entry.about, entry.fence - 1)

    def _all_begun(self) -> bool:
        self._hear()
        return len(self.begun) >= self.jobs

    def _settled(self) -> bool:
        self._hear()
        self.children.call(partial(count_charges, self.work, self.here))
        return not json.loads(self.here.charges.read_text())["running"]


class ClockStepsSqlite(ClockSteps):
    """All processes have the clock that steps."""

    def __init__(self, wish: Wish, watch: Watch = lambda _: None, **given: int) -> None:
        self.clock = own_clock()
        super().__init__(wish, watch, **given)
        self.figures.url = TEMPORARY

    def clean_up(self) -> None:
        super().clean_up()
        remove(self.clock)


class ClockStepsPostgres(ClockSteps):
    """The server has the clock that steps."""

    def __init__(self, wish: Wish, watch: Watch = lambda _: None, **given: int) -> None:
        self.server = Server("clock")
        try:
            self.clock = SteppedClock(self.server.folder / "clock")
            self.server.environment = self.clock.environment
            super().__init__(replace(wish, url=self.server.url), watch, **given)
        except BaseException:
            self.server.remove()
            raise
        self.figures.url = OWN

    def campaign(self) -> None:
        try:
            self.server.start(self.children, self.tick)
            super().campaign()
        finally:
            self.server.crash(self.children.poll)

    def _lock(self) -> None:
        """While its clock is ahead of the machine's, libfaketime keeps the server's timeouts from
        firing, and these tell owners of a lock."""
        if self.clock.offset > 0:
            self.clock.set(0)
            self.figures.row("an hour back").add("steps")
        super()._lock()

    def clean_up(self) -> None:
        """The schemas go with their server."""
        self.figures.close()
        if not self.wish.keep:
            shutil.rmtree(self.site.folder, ignore_errors=True)
            self.server.remove()


def enqueue_held(work: Workload, number: int) -> None:
    """In a child: jobs that run until they may end; every other one has a timeout."""
    calls = [work.holds.using(timeout=HALF_AN_HOUR if n % 2 else None).job() for n in range(number)]
    for job in work.ol.enqueue(*calls):
        work.ledger.write("promised", job.id, 0, ["succeeded"])
    work.ol.close()


def hold_lock(place: Place, seconds: float) -> None:
    """In a child: a stranger who keeps everybody from writing."""
    if place.is_sqlite:
        path = place.url.removeprefix("sqlite:///")
        with closing(sqlite3.connect(path, timeout=30.0, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            time.sleep(seconds)
            connection.execute("COMMIT")
        return
    import psycopg
    from psycopg import sql

    with psycopg.connect(place.url) as connection:
        job = sql.Identifier(place.schema, "job")
        connection.execute(sql.SQL("LOCK TABLE {} IN EXCLUSIVE MODE").format(job))
        time.sleep(seconds)


def count_charges(work: Workload, place: Place) -> None:
    """In a child: what was charged to the jobs so far."""
    jobs = list(work.ol.jobs(limit=100_000))
    told = {
        "running": sum(not job.final for job in jobs),
        "crashes": sum(job.crashes for job in jobs),
        "failures": sum(job.failures for job in jobs),
        "claims": sum(job.fence for job in jobs),
        "dead": sum(job.state == "dead" for job in jobs),
    }
    work.ol.close()
    written = Path(f"{place.charges}.new")
    written.write_text(json.dumps(told))
    written.replace(place.charges)
