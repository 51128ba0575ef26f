"""What campaigns share that strike in the middle of a path, and then see everything recover.

    trace     each path is walked once, and where it can be struck is counted
    strike    one child per point: it prepares, acts, and is struck there
    recover   after each batch: a worker works until all is settled, and the judge looks

A batch is recovered while the next one is being struck, in another place.
"""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import ClassVar

from .campaign import Campaign
from .checker import Violation
from .children import Ended
from .paths import PATHS
from .place import Place
from .points import Deck, Point, batches, rounds
from .recovery import recover
from .tracing import Labels, Tracer, Tracing
from .workload import Workload

BATCH = 150  # strikes in one place
LEASE = 1.0  # seconds: so long does a struck owner's job wait
RECOVERIES = 3  # batches that may be recovering while others are struck


class Strikes(Campaign):
    turns: ClassVar[int] = 1  # how often a point of a short path is struck in one round

    def campaign(self) -> None:
        self._recovering = 0
        luck = random.Random(self.seed)
        traced = Tracing(self, LEASE, self._recover, self.tracer()).run()
        decks = []
        for name, words in sorted(traced.items()):
            points = self.points(name, words)
            self.figures.row(name).points = len(points)
            slow = PATHS[name].most
            decks.append(Deck([*points] * (1 if slow else self.turns), slow, luck))
        for dealt in rounds(decks, luck) if any(deck.points for deck in decks) else ():
            for batch in batches(dealt, BATCH):
                if not self.over():
                    self._strike(batch)
            if self.over():
                break
        while self._recovering:
            self.step()

    @abstractmethod
    def tracer(self) -> Tracer:
        """What a child does that walks a path only to count."""

    @abstractmethod
    def points(self, path: str, words: Sequence[str]) -> Sequence[Point]:
        """Where to strike a path that said this."""

    @abstractmethod
    def send(self, place: Place, named: Labels) -> None:
        """Start a child on an errand."""

    def _strike(self, batch: list[Point]) -> None:
        place = self.place()
        labels: Labels = {}
        for errand in self.errands(batch):
            if self.over():
                break
            named = {f"p{len(labels) + number}": point for number, point in enumerate(errand)}
            labels |= named
            self.started += len(named)
            self.send(place, named)
        while self.running:
            self.step()
        self._recover(place, labels)

    def errands(self, batch: list[Point]) -> Iterator[list[Point]]:
        """What one child does: one point, unless it can live on."""
        return ([point] for point in batch)

    def survived(self, point: Point) -> None:
        """It came to its end before it was struck: that is no point."""
        self.figures.row(point.path).add("survived")
        self.started -= 1

    def _recover(self, place: Place, labels: Labels) -> None:
        while self._recovering >= RECOVERIES:
            self.step()
        self._recovering += 1
        body = partial(look_after, self.work, place, labels, self.wish.keep, self.examine)
        self.children.start(body, partial(self._recovered, place, labels))

    def _recovered(self, place: Place, labels: Labels, ended: Ended) -> None:
        self._recovering -= 1
        self.judged(place, labels, ended)

    def examine(self, place: Place) -> Iterable[Violation]:
        """In the child that looks: what is wrong beside that."""
        return ()


class StruckAlone(Strikes):
    """One child per point, which may not outlive it."""

    @abstractmethod
    def walk(self, label: str, point: Point) -> Callable[[], None]:
        """What a child does that is struck at one point."""

    @abstractmethod
    def struck(self, point: Point, ended: Ended) -> None:
        """Take down how it ended."""

    def send(self, place: Place, named: Labels) -> None:
        for label, point in named.items():
            self.start(self.walk(label, point), partial(self._ended, point))

    def _ended(self, point: Point, ended: Ended) -> None:
        self.running -= 1
        self.struck(point, ended)


def look_after(
    work: Workload,
    place: Place,
    labels: Labels,
    keep: bool,
    examine: Callable[[Place], Iterable[Violation]],
) -> None:
    """In a child: recover a batch; it is of no more use then, unless somebody wants to see it."""
    verdict = recover(work.at(place), labels, LEASE)
    verdict.violations += examine(place)
    verdict.write(place.verdict)
    if not keep:
        place.remove()
