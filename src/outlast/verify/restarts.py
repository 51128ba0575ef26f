"""`outlast verify recovery`: from the SIGKILL of a worker until its jobs run on another one.

hold      a few workers, with the settings that everybody has, hold long jobs
kill      one that holds some dies by SIGKILL, at a random moment
measure   until another one has begun the last of its jobs, by the ledger; nobody is started
          before that, because a newcomer looks around at once
settle    in the end the others are killed too, and the judge looks
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from ..model.offer import remote_id
from ..model.settings import WorkerSettings
from ..ops import duties
from .campaign import Wish
from .figures import Figures
from .lasting import Lasting, work_on
from .ledger import Entry
from .recovery import LONGEST
from .workload import Workload

WORKERS = 4
JOBS = 3  # for each worker
HELD = 86400.0  # seconds: nobody lives to see the end of one
SLACK = 2.0  # seconds after the lease in which a job must be running again, at the very last
PAUSE = (0.2, 0.9)  # seconds before the next kill, so that it finds the others at any moment
LONG = 2.0  # seconds after which we go on, and kill another meanwhile
REGISTER_EVERY_S = 30.0  # for remote workers, whose cards count for a minute
AT_ONCE = 8  # kills that may be waited for


@dataclass(slots=True)
class Kill:
    pid: int
    at: float
    jobs: set[str]  # those of its jobs that nobody has begun again
    lost: int = 0
    slowest: float = 0.0
    replaced: bool = False


@dataclass(slots=True)
class Hands:
    """Which process has begun which jobs, by the ledger."""

    held: dict[int, set[str]] = field(default_factory=dict)
    kills: list[Kill] = field(default_factory=list)
    promised: set[str] = field(default_factory=set)
    begun: set[str] = field(default_factory=set)

    def heard(self, entry: Entry) -> None:
        if entry.what != "began":
            self.promised.add(entry.about)
            return
        self.begun.add(entry.about)
        killed = next((kill for kill in self.kills if kill.pid == entry.pid), None)
        if killed:
            killed.jobs.add(entry.about)  # its last words
            return
        for kill in self.kills:
            if entry.about in kill.jobs:
                kill.jobs.discard(entry.about)
                kill.slowest = max(kill.slowest, entry.at - kill.at)
        if entry.fence == 1:
            self.held.setdefault(entry.pid, set()).add(entry.about)


class Restarts(Lasting):
    name = "recovery"
    columns = ("kills", "restarted")
    goal = "kills"

    def __init__(
        self, wish: Wish, watch: Callable[[Figures], None] = lambda _: None, *, remote: int = 0
    ) -> None:
        super().__init__(wish, watch)
        self.remote = remote  # workers that are registered, and never look for lost jobs
        self._registered_at = -REGISTER_EVERY_S

    def act(self) -> None:
        self.luck = random.Random(self.seed)
        self.hands = Hands()
        self.limit = WorkerSettings.of().lease + SLACK
        self.measured = self.figures.spans.setdefault("recovery", [])
        self.workers = self.crew("worker", partial(work_on, self.work, {}))
        number = self.wish.at_once or WORKERS
        self.workers.fill(number)
        for _ in range(number):
            self._feed(JOBS)
        self._strike_at = self._struck_at = time.monotonic()
        while not self.over() or self.hands.kills:
            self.tick()
            self._look()
            self._register()
            if not self.over() and time.monotonic() >= self._strike_at:
                self._strike()
        self.await_(self._all_begun, LONGEST)
        for pid in list(self.workers.at_work):
            self.workers.kill(pid)
        self.dismissed(self.workers)

    def _register(self) -> None:
        """Remote workers say from time to time that they are there."""
        now = time.monotonic()
        if self.remote and now - self._registered_at >= REGISTER_EVERY_S:
            self._registered_at = now
            self.children.start(partial(register, self.work, self.remote), self._prepared)

    def _all_begun(self) -> bool:
        """Nobody is left to wait out a job that begins only now."""
        self._look()
        return self.hands.promised <= self.hands.begun

    def _look(self) -> None:
        for entry in self.tail.read():
            self.hands.heard(entry)
        now = time.monotonic()
        for kill in list(self.hands.kills):
            if not kill.jobs:
                self._restarted(kill)
            elif now - kill.at > self.limit:
                self._overdue(kill)
            elif now - kill.at > LONG:
                self._replace(kill)

    def _strike(self) -> None:
        """Kill one that holds something, unless too many are waited for already."""
        now, waiting = time.monotonic(), len(self.hands.kills)
        if waiting and (now - self._struck_at < LONG or waiting >= AT_ONCE):
            return
        victims = sorted(pid for pid in self.workers.at_work if self.hands.held.get(pid))
        if not victims or len(self.workers) < 2:
            return
        pid = self.luck.choice(victims)
        jobs = self.hands.held.pop(pid)
        self._struck_at = time.monotonic()
        self.workers.kill(pid)
        self.hands.kills.append(Kill(pid, self._struck_at, jobs, len(jobs)))
        self.started += 1
        self.figures.row(self.name).add("kills")

    def _restarted(self, kill: Kill) -> None:
        self.hands.kills.remove(kill)
        self.measured.append(kill.slowest)
        if kill.slowest > self.limit:
            self._late(f"a job of worker {kill.pid} ran again after {kill.slowest:.1f} s")
        self.figures.row(self.name).add("restarted", kill.lost)
        self._replace(kill)
        self._strike_at = time.monotonic() + self.luck.uniform(*PAUSE)

    def _overdue(self, kill: Kill) -> None:
        self.hands.kills.remove(kill)
        for job in sorted(kill.jobs):
            self._late(f"{job}: not running again {self.limit:g} s after worker {kill.pid} died")
        self._replace(kill)

    def _late(self, told: str) -> None:
        self.figures.complain("recovery", self.name, f"I2 owner-dead: {told}")

    def _replace(self, kill: Kill) -> None:
        if not kill.replaced:
            kill.replaced = True
            self.workers.fill(len(self.workers) + 1)
            if not self.over():
                self._feed(kill.lost)

    def _feed(self, number: int) -> None:
        self.children.start(partial(hold, self.work, number), self._prepared)


def register(work: Workload, number: int) -> None:
    """In a child: the cards of remote workers."""
    card = work.ol.worker().card()
    for n in range(number):
        work.ol.store.run(duties.arrive, card | {"id": remote_id("verify", str(n))})
    work.ol.close()


def hold(work: Workload, number: int) -> None:
    """In a child: enqueue jobs that last."""
    for job in work.ol.enqueue(*[work.naps.job(seconds=HELD) for _ in range(number)]):
        work.ledger.write("promised", job.id, 0, ["succeeded"])
    work.ol.close()
