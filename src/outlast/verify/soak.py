"""`outlast verify soak`: under load, something bad every one to three seconds.

feed      enqueuers ask for short jobs of all kinds, alone, in bulk, in transactions
work      worker processes, some of them under a supervisor, carry them out
strike    a fault of a random kind, until the time is up
settle    the frozen go on, what is left is worked off, all are asked to go, and the judge looks
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from .campaign import Wish
from .faults import Cuts, kill_quietly, named
from .figures import Figures
from .hired import supervised, workers_of
from .loaded import Loaded
from .recovery import LONGEST

EVERY = (1.0, 3.0)  # seconds between faults
LEASE = 2.0  # seconds: so soon does somebody who is frozen lose everything
FROZEN = (1.2, 2.0)  # how long, in leases
TIMINGS: dict[str, Any] = {
    "lease": LEASE,
    "renew_every": 0.5,
    "poll_max": 0.2,
    "grace": 5.0,
}


class Soak(Loaded):
    name = "soak"
    columns = ("faults", "enqueued")
    goal = "faults"
    settings: ClassVar[dict[str, Any]] = {"idle_timeout": LEASE}
    workers_at_work = 4
    worker_settings = TIMINGS
    rate = 260.0  # which makes 200,000 jobs in ten minutes, with those that they enqueue

    def __init__(self, wish: Wish, watch: Callable[[Figures], None] = lambda _: None) -> None:
        super().__init__(wish, watch)
        named(self.site)

    def act(self) -> None:
        self.load()
        self.supervisors = self.crew("supervisor", partial(supervised, self.work, TIMINGS))
        self._thaws: list[tuple[float, int]] = []
        try:
            self._strike_until_over()
            self._thaw(all_of_them=True)
            self.wind_down(self.supervisors)
        finally:
            self._end_the_supervised()

    def _strike_until_over(self) -> None:
        faults = self._faults()
        strike_at = time.monotonic() + self.luck.uniform(*EVERY)
        while not self.over():
            self._go_round()
            if time.monotonic() < strike_at:
                continue
            kind = self.luck.choice(sorted(faults))
            if faults[kind]():
                self.figures.row(kind).add("faults")
                strike_at = time.monotonic() + self.luck.uniform(*EVERY)

    def _go_round(self) -> None:
        self.hear()
        self._thaw()
        self.refill()
        self.supervisors.fill(1)

    def _thaw(self, *, all_of_them: bool = False) -> None:
        for at, pid in [*self._thaws]:
            if all_of_them or time.monotonic() >= at:
                self._thaws.remove((at, pid))
                self.workers.thaw(pid)

    # What may happen: each says whether it could be done

    def _faults(self) -> dict[str, Callable[[], bool]]:
        faults = {
            "kill a worker": self._kill,
            "freeze a worker": self._freeze,
            "stop a worker": self._stop,
            "kill an enqueuer": self._kill_feeder,
            "kill a supervisor": self._kill_supervisor,
        }
        if workers_of(0) is not None:  # where one can find out
            faults["kill a supervised worker"] = self._kill_supervised
        if not self.site.is_sqlite:
            self._cuts = Cuts(self.site, self.luck)
            faults["cut connections"] = self._cut
        return faults

    def _kill(self) -> bool:
        return self._to(self.workers.at_work, self.workers.kill)

    def _stop(self) -> bool:
        return self._to(self.workers.awake, self.workers.ask_to_go)

    def _kill_feeder(self) -> bool:
        return self._to(self.feeders.at_work, self.feeders.kill)

    def _kill_supervisor(self) -> bool:
        return self._to(self.supervisors.at_work, self.supervisors.kill)

    def _freeze(self) -> bool:
        """Longer than its lease lasts; somebody stays awake."""
        if len(self.workers.awake) < 2:
            return False
        pid = self.luck.choice(sorted(self.workers.awake))
        self.workers.freeze(pid)
        self._thaws.append((time.monotonic() + LEASE * self.luck.uniform(*FROZEN), pid))
        return True

    def _kill_supervised(self) -> bool:
        found = [pid for boss in self.supervisors.at_work for pid in workers_of(boss) or ()]
        return self._to(found, kill_quietly)

    def _cut(self) -> bool:
        ends: list[bool] = []
        self.children.start(self._cuts, lambda ended: ends.append(ended.well))
        return self.await_(lambda: bool(ends), LONGEST) and ends[0]

    def _to(self, pids: list[int], strike: Callable[[int], None]) -> bool:
        if not pids:
            return False
        strike(self.luck.choice(sorted(pids)))
        return True

    def _end_the_supervised(self) -> None:
        """Only if something above failed: whoever is supervised would outlive this for a while."""
        for boss in self.supervisors.at_work:
            for pid in workers_of(boss) or ():
                kill_quietly(pid)
