"""Where to strike: every exchange of every path, before it and after it, in a shuffled order."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .paths import PATHS


@dataclass(frozen=True, slots=True)
class Point:
    path: str
    at: int  # the number of the exchange, from 1
    after: bool

    def __str__(self) -> str:
        return f"{self.path}: {'after' if self.after else 'before'} exchange {self.at}"


def points_of(path: str, words: Sequence[str]) -> list[Point]:
    """Before and after each exchange that was traced."""
    return [Point(path, at, after) for at in range(1, len(words) + 1) for after in (False, True)]


def unlocked(path: str, words: Sequence[str]) -> list[Point]:
    """Those of them at which no transaction is open, by what was said: on SQLite an open one keeps
    everybody else from writing."""
    found, inside = [], False
    for at, word in enumerate(words, 1):
        if not inside:
            found.append(Point(path, at, False))
        inside = word.startswith("BEGIN") or (inside and not word.startswith(("COMMIT", "ROLLB")))
        if not inside:
            found.append(Point(path, at, True))
    return found


class Deck:
    """Points of one path, dealt in a shuffled order; when all are dealt, shuffled anew."""

    def __init__(self, points: Sequence[Point], most: int | None, luck: random.Random) -> None:
        self.points = points
        self.most = most or len(points)
        self._luck = luck
        self._left: list[Point] = []

    def round(self) -> Iterator[Point]:
        """Every point once; if there are many, the next few."""
        for _ in range(min(len(self.points), self.most)):
            if not self._left:
                self._left = self._luck.sample(self.points, len(self.points))
            yield self._left.pop()


def rounds(decks: Sequence[Deck], luck: random.Random) -> Iterator[list[Point]]:
    """Round after round, without end. A path's first point comes before any path's second, so that
    a short run is a sample of all of them."""
    while True:
        dealt = [list(deck.round()) for deck in decks]
        longest = max(map(len, dealt), default=0)
        turns = [[hand[turn] for hand in dealt if turn < len(hand)] for turn in range(longest)]
        for turn in turns:
            luck.shuffle(turn)
        yield [point for turn in turns for point in turn]


def batches(points: list[Point], size: int) -> Iterator[list[Point]]:
    """Points that share a place. Paths that would remove what others leave are kept apart, and some
    have a place to themselves."""
    for apart in (True, False):
        chosen = [point for point in points if PATHS[point.path].apart is apart]
        yield from ([point] for point in chosen if PATHS[point.path].alone)
        chosen = [point for point in chosen if not PATHS[point.path].alone]
        for start in range(0, len(chosen), size):
            yield chosen[start : start + size]
