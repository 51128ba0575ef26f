"""Campaigns in which everything goes on at once, in one place, until there is enough of it."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import time
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from .campaign import Campaign, prepare
from .checker import Violation
from .children import Ended
from .crew import Crew
from .ledger import Tail
from .place import Place
from .points import Point
from .recovery import judge, settle
from .workload import Workload

LOOK_EVERY = 0.005  # seconds
END = "the end"  # where what the judge finds is put down
PATIENCE = 120.0  # seconds for all who were asked to go, on a machine that has much else to do
SLOWLY = 120.0  # seconds that the judge may take to read everything at once


class Lasting(Campaign):
    """`act` does it; afterwards all that is left is settled and judged."""

    def campaign(self) -> None:
        self.here = self.site.next()
        self.children.call(partial(prepare, self.work, self.here))
        self.work.trust(self.here)
        self.tail = Tail(self.work.ledger)
        self.act()
        self._conclude()

    @abstractmethod
    def act(self) -> None:
        """All that goes on, until there is enough of it."""

    def tick(self) -> None:
        """Notice what has happened meanwhile; never for long, never in vain."""
        if self._stops:
            raise KeyboardInterrupt
        self.children.poll()
        self.watch(self.figures)
        time.sleep(LOOK_EVERY)

    def await_(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Whether it became true in time."""
        until = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > until:
                return False
            self.tick()
        return True

    def crew(self, name: str, body: Callable[[int], object]) -> Crew:
        return Crew(self.children, name, body, partial(self.figures.complain, name, name))

    def dismissed(self, *crews: Crew) -> None:
        """Wait for those that were told to go."""
        if not self.await_(lambda: not any(crew.expected for crew in crews), PATIENCE):
            for crew in crews:
                for pid in crew.expected:
                    told = f"{crew.name} {pid} was told to go, and is still there"
                    self.figures.complain(crew.name, crew.name, told)

    def _conclude(self) -> None:
        ends: list[Ended] = []
        self.children.start(partial(look_at_all, self.work, self.here), ends.append)
        while not ends:
            self.tick()
        self.judged(self.here, {}, ends[0])

    def _wrong(self, labels: dict[str, Point], violation: Violation) -> None:
        self.figures.complain(END, END, str(violation))


def work_on(work: Workload, settings: dict[str, Any], number: int) -> None:
    """In a child: a worker, for as long as it may live."""
    faulthandler.cancel_dump_traceback_later()
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # until it has begun
    work.ol.worker(**settings).run()


def look_at_all(work: Workload, place: Place) -> None:
    """In a child: settle what is left, and judge."""
    faulthandler.cancel_dump_traceback_later()
    store = work.ol.store
    store.settings = replace(store.settings, statement_timeout=SLOWLY, deadline=SLOWLY)
    asyncio.run(settle(work.ol))
    judge(work).write(place.verdict)
