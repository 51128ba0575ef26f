"""`outlast verify flows`: random graphs of jobs, while workers are killed and minds are changed.

ask       enqueuers ask for graphs of every shape, and cancel some of them, or jobs in them
work      worker processes carry them out; one of them is killed every one to three seconds
settle    what is left is worked off, all are asked to go, and the judge looks at every follower
"""

from __future__ import annotations

import random
import time
from collections import Counter
from functools import partial
from typing import Any, ClassVar

from ..model.errors import InvalidOption
from .asking import ask, drain
from .feeding import Gate
from .lasting import Lasting, work_on
from .ledger import Entry
from .paths import Path
from .recovery import LONGEST

EVERY = (1.0, 3.0)  # seconds between kills
ASKERS = 1
WORKERS = 4
WORK: dict[str, Any] = {
    "lease": 2.0,
    "renew_every": 0.5,
    "poll_max": 0.2,
    "grace": 5.0,
    "concurrency": 32,
}
BANDS = ((1, "1"), (9, "2-9"), (99, "10-99"), (999, "100-999"), (10**9, "1000"))


class Flows(Lasting):
    name = "flows"
    columns = ("flows", "fan_ins", "kills", "cancels")
    goal = "fan_ins"
    settings: ClassVar[dict[str, Any]] = {"idle_timeout": 5.0}

    def act(self) -> None:
        self.luck = random.Random(self.seed)
        self.gate = Gate()
        self.sizes: Counter[str] = Counter()
        self.workers = self.crew("worker", partial(work_on, self.work, WORK))
        self.askers = self.crew("enqueuer", partial(ask, self.work, self.gate, self.seed))
        self._kill_at = time.monotonic() + self.luck.uniform(*EVERY)
        while not self.over():
            self.askers.fill(ASKERS)
            self._go_round()
        self._wind_down()
        self.figures.facts["sizes"] = {name: self.sizes[name] for _, name in BANDS}

    def _go_round(self) -> None:
        """Hear what was asked for, and keep killing whoever works on it."""
        self.tick()
        self.workers.fill(self.wish.at_once or WORKERS)
        for entry in self.tail.read():
            self._hear(entry)
        if time.monotonic() >= self._kill_at:
            self.workers.kill(self.luck.choice(sorted(self.workers.at_work)))
            self.figures.row("workers").add("kills")
            self._kill_at = time.monotonic() + self.luck.uniform(*EVERY)

    def _hear(self, entry: Entry) -> None:
        if entry.what == "flow":
            row = self.figures.row(entry.said["shape"])
            row.add("flows")
            row.add("fan_ins", len(entry.said["fan_ins"]))
            self.started += len(entry.said["fan_ins"])
            for size in entry.said["fan_ins"]:
                self.sizes[next(name for most, name in BANDS if size <= most)] += 1
        elif entry.what in ("stopped", "unwanted"):
            what = "cancelled flows" if entry.what == "stopped" else "cancelled jobs"
            self.figures.row(what).add("cancels")

    def _wind_down(self) -> None:
        """No more is asked for; what there is gets done, and workers die until it is."""
        self.gate.set(Gate.SHUT)
        self.askers.let_go()
        self.dismissed(self.askers)
        ends: list[object] = []
        self.children.start(partial(drain, self.work, LONGEST), ends.append)
        while not ends:
            self._go_round()
        seconds = time.monotonic() - self.figures.began
        self.figures.facts["fan_ins_a_minute"] = round(60 * self.figures.total("fan_ins") / seconds)
        for pid in list(self.workers.at_work):
            self.workers.ask_to_go(pid)
        self.dismissed(self.workers)

    def _chosen(self) -> list[Path]:
        if self.wish.paths:
            raise InvalidOption(option="path", reason="is not for this campaign")
        return []
