"""Campaigns under load: enqueuers ask for short jobs all the time, workers carry them out."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from .crew import Crew
from .feeding import Backlog, Gate, feed
from .lasting import Lasting, work_on
from .ledger import Entry
from .recovery import LONGEST

FEEDERS = 2


class Loaded(Lasting):
    workers_at_work: ClassVar[int]
    worker_settings: ClassVar[dict[str, Any]] = {}
    work_off: ClassVar[float] = LONGEST  # seconds to begin all that was promised, at the end
    rate: ClassVar[float]  # jobs a second, of all enqueuers together

    def load(self) -> None:
        self.luck = random.Random(self.seed)
        self.backlog = Backlog(Gate())
        self.workers = self.crew("worker", self.worker_body())
        body = partial(feed, self.work, self.backlog.gate, self.seed, self.rate / FEEDERS)
        self.feeders = self.crew("enqueuer", body)
        self.refill()

    def worker_body(self) -> Callable[[int], object]:
        return partial(work_on, self.work, self.worker_settings)

    def refill(self) -> None:
        """Replace who is gone, until it is over."""
        if self.backlog.gate.state != Gate.SHUT:
            self.workers.fill(self.wish.at_once or self.workers_at_work)
            self.feeders.fill(FEEDERS)

    def hear(self) -> list[Entry]:
        """What is new in the ledger; the enqueuers are kept in check by it."""
        self.tick()
        entries = list(self.tail.read())
        promised = self.backlog.hear(entries)
        self.figures.row("load").add("enqueued", promised)
        return entries

    def wind_down(self, *others: Crew) -> None:
        """No more work; what there is gets done; then everybody goes."""
        self.backlog.gate.set(Gate.SHUT)
        self.feeders.let_go()
        self.dismissed(self.feeders)
        self.await_(self._worked_off, self.work_off)
        crews = (self.workers, *others)
        for crew in crews:
            for pid in list(crew.at_work):
                crew.ask_to_go(pid)
        self.dismissed(*crews)

    def _worked_off(self) -> bool:
        self.hear()
        return not self.backlog.waiting
