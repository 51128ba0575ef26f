"""`outlast verify dbcrash`: a PostgreSQL of its own crashes and comes back, again and again.

load      enqueuers and workers, all the time
crash     SIGQUIT to the server, at a random moment; then it is started again
measure   from when it accepts connections until the first job begins
settle    after the last one all is worked off, and the judge looks: whatever was acknowledged
          is there, and was done
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import replace

from .campaign import Wish
from .figures import Figures
from .loaded import Loaded
from .place import OWN
from .server import Server

BETWEEN = (0.5, 2.5)  # seconds of work between a crash and the next
SOON = 30.0  # seconds in which a job must have begun


class DatabaseCrash(Loaded):
    name = "dbcrash"
    columns = ("crashes", "enqueued")
    goal = "crashes"
    workers_at_work = 3
    rate = 200.0

    def __init__(self, wish: Wish, watch: Callable[[Figures], None] = lambda _: None) -> None:
        self.server = Server()
        try:
            super().__init__(replace(wish, url=self.server.url), watch)
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

    def clean_up(self) -> None:
        """The schemas go with their server."""
        self.figures.close()
        if not self.wish.keep:
            shutil.rmtree(self.site.folder, ignore_errors=True)
            self.server.remove()

    def act(self) -> None:
        self.first_claims = self.figures.spans.setdefault("first_claim", [])
        self.load()
        self._first_begun(time.monotonic())
        while not self.over():
            self._cycle()
        self.wind_down()

    def _cycle(self) -> None:
        self.server.crash(self.hear)
        ready_at = self.server.start(self.children, self.hear)
        self.started += 1
        self.figures.row("server").add("crashes")
        if begun_at := self._first_begun(ready_at):
            self.first_claims.append(begun_at - ready_at)
        else:
            told = f"no job began within {SOON:g} s after the server was back"
            self.figures.complain("server", "server", f"I2 stalled-net: {told}")
        pause = time.monotonic() + self.luck.uniform(*BETWEEN)
        while time.monotonic() < pause:
            self.hear()

    def _first_begun(self, moment: float) -> float | None:
        """When the first job began after that moment; None: not in time."""
        until = time.monotonic() + SOON
        while time.monotonic() < until:
            begins = [e.at for e in self.hear() if e.what == "began" and e.at > moment]
            if begins:
                return min(begins)
        return None
