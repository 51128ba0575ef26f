"""`outlast verify crash`: a real process is killed before and after every statement of every path.

    trace     each path is walked once, and its exchanges with the database are counted
    kill      one child per point: it prepares, arms its trap, acts, and dies there by SIGKILL
    recover   after each batch: a worker works until all is settled, and the judge looks

A batch is recovered while the next one is being killed, in another place.
"""

from __future__ import annotations

import random
import signal
from functools import partial
from typing import Any, ClassVar

from .campaign import Campaign
from .children import Ended
from .paths import PATHS, perform
from .place import Place
from .points import Deck, Point, batches, points_of, rounds
from .recovery import recover
from .stage import Stage
from .tracing import Labels, Tracing
from .trap import Trap
from .workload import Workload

BATCH = 150  # kills in one place
LEASE = 1.0  # seconds: so long does a killed owner's job wait
RECOVERIES = 3  # batches that may be recovering while others are killed


class Crash(Campaign):
    name = "crash"
    columns = ("kills", "survived")
    goal = "kills"
    # Who opens the file first after a kill reads the whole log.
    settings: ClassVar[dict[str, Any]] = {"checkpoint_pages": 200}

    def campaign(self) -> None:
        self._recovering = 0
        luck = random.Random(self.seed)
        traced = Tracing(self, LEASE, self._recover).run()
        decks = [
            Deck(points_of(name, words), PATHS[name].most, luck)
            for name, words in sorted(traced.items())
        ]
        for points in rounds(decks, luck) if decks else ():
            for batch in batches(points, BATCH):
                if not self.over():
                    self._kill(batch)
            if self.over():
                break
        while self._recovering:
            self.step()

    def _kill(self, batch: list[Point]) -> None:
        place = self.place()
        labels: Labels = {}
        for number, point in enumerate(batch):
            if self.over():
                break
            label = f"p{number}"
            labels[label] = point
            self.started += 1
            self.start(partial(walk, self.work, label, point), partial(self._struck, point))
        while self.running:
            self.step()
        self._recover(place, labels)

    def _struck(self, point: Point, ended: Ended) -> None:
        self.running -= 1
        if ended.signal == signal.SIGKILL:
            self.figures.row(point.path).add("kills")
        elif ended.well:
            self.figures.row(point.path).add("survived")
            self.started -= 1
        else:
            self.failed(str(point), point, ended)

    def _recover(self, place: Place, labels: Labels) -> None:
        while self._recovering >= RECOVERIES:
            self.step()
        self._recovering += 1
        body = partial(look_after, self.work, place, labels, self.wish.keep)
        self.children.start(body, partial(self._recovered, place, labels))

    def _recovered(self, place: Place, labels: Labels, ended: Ended) -> None:
        self._recovering -= 1
        self.judged(place, labels, ended)


def walk(work: Workload, label: str, point: Point) -> None:
    """In a child: walk a path until the trap strikes."""
    trap = Trap(point.at, point.after)
    trap.install()
    perform(PATHS[point.path], Stage(work, label, LEASE, trap))


def look_after(work: Workload, place: Place, labels: Labels, keep: bool) -> None:
    """In a child: recover a batch; it is of no more use then, unless somebody wants to see it."""
    verdict = recover(work.at(place), labels, LEASE)
    verdict.write(place.verdict)
    if not keep:
        place.remove()
