"""`outlast verify failover`: the primary dies, its standby takes over, again and again.

load      enqueuers and workers, all the time, by one address that names both servers
fail      the primary is stopped at once, and the standby promoted
rebuild   the old primary comes back as the standby of the new one
settle    after the last one all is worked off, and the judge looks

Synchronous, the standby has every commit before it is acknowledged: whatever was acknowledged is
there, and was done. `split_brain` has the asynchronous campaign.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

from .campaign import Wish
from .figures import Figures
from .loaded import Loaded
from .place import PAIR
from .standby import Pair

BETWEEN = (0.5, 2.0)  # seconds of work between a rebuilt standby and the next failure
SOON = 30.0  # seconds in which a job must have begun


class Failover(Loaded):
    name = "failover"
    columns: ClassVar[tuple[str, ...]] = ("failovers", "enqueued")
    goal = "failovers"
    workers_at_work = 3
    rate = 150.0

    def __init__(self, wish: Wish, watch: Callable[[Figures], None] = lambda _: None) -> None:
        self.pair = Pair()
        try:
            super().__init__(replace(wish, url=self.pair.url()), watch)
        except BaseException:
            self.pair.remove()
            raise
        self.figures.url = PAIR

    def campaign(self) -> None:
        try:
            self.pair.start(self.children, self.tick)
            super().campaign()
        finally:
            self.pair.end(self.children.poll)

    def clean_up(self) -> None:
        """The schemas go with their servers."""
        self.figures.close()
        if not self.wish.keep:
            shutil.rmtree(self.site.folder, ignore_errors=True)
            self.pair.remove()

    def act(self) -> None:
        self.join()
        self.load()
        self.first_begun(time.monotonic())
        while not self.over():
            self.fail_over()
            self.started += 1
            self.figures.row("primary").add("failovers")
        self.wind_down()

    def fail_over(self) -> None:
        self.pause(*BETWEEN)
        self.pair.primary.crash(self.hear)
        self.taken_over(self.pair.promote())
        self.pair.rebuild(self.children, self.hear)
        self.join()

    def join(self) -> None:
        """The standby has every commit before it is acknowledged."""
        self.pair.synchronise(self.tick)

    def taken_over(self, promoted_at: float) -> None:
        """Measure how soon work goes on at the new primary."""
        if begun_at := self.first_begun(promoted_at):
            self.figures.spans.setdefault("first_claim", []).append(begun_at - promoted_at)
        else:
            told = f"no job began within {SOON:g} s after the standby was promoted"
            self.figures.complain("primary", "primary", f"I2 stalled-net: {told}")

    def pause(self, least: float, most: float) -> None:
        until = time.monotonic() + self.luck.uniform(least, most)
        while time.monotonic() < until:
            self.hear()

    def first_begun(self, moment: float) -> float | None:
        """When the first job began after that moment; None: not in time."""
        until = time.monotonic() + SOON
        while time.monotonic() < until:
            begins = [e.at for e in self.hear() if e.what == "began" and e.at > moment]
            if begins:
                return min(begins)
        return None
