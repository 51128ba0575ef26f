"""Fault points: before and after every exchange of every scenario, in shuffled order."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..scenarios import SCENARIOS


@dataclass(frozen=True, slots=True)
class FaultPoint:
    scenario: str
    exchange: int  # the number of the exchange, from 1
    after: bool

    def __str__(self) -> str:
        return f"{self.scenario}: {'after' if self.after else 'before'} exchange {self.exchange}"


def points_of(scenario: str, exchanges: Sequence[str]) -> list[FaultPoint]:
    """The points before and after each traced exchange."""
    return [
        FaultPoint(scenario, number, after)
        for number in range(1, len(exchanges) + 1)
        for after in (False, True)
    ]


def points_outside_transactions(scenario: str, exchanges: Sequence[str]) -> list[FaultPoint]:
    """The points without an open transaction, by the statements: on SQLite an open transaction
    prevents all other writes."""
    found, inside = [], False
    for number, exchange in enumerate(exchanges, 1):
        if not inside:
            found.append(FaultPoint(scenario, number, False))
        inside = exchange.startswith("BEGIN") or (
            inside and not exchange.startswith(("COMMIT", "ROLLB"))
        )
        if not inside:
            found.append(FaultPoint(scenario, number, True))
    return found


class PointDeck:
    """The points of one scenario in shuffled order; shuffled again after each round."""

    def __init__(
        self, points: Sequence[FaultPoint], max_per_round: int | None, rng: random.Random
    ) -> None:
        self.points = points
        self.max_per_round = max_per_round or len(points)
        self._rng = rng
        self._remaining: list[FaultPoint] = []

    def deal(self) -> Iterator[FaultPoint]:
        """Every point once, or the next few if there are many."""
        for _ in range(min(len(self.points), self.max_per_round)):
            if not self._remaining:
                self._remaining = self._rng.sample(self.points, len(self.points))
            yield self._remaining.pop()


def rounds(decks: Sequence[PointDeck], rng: random.Random) -> Iterator[list[FaultPoint]]:
    """Endless rounds of points. The first point of each scenario comes before any second one, so
    that a short run is a sample of all scenarios."""
    while True:
        dealt = [list(deck.deal()) for deck in decks]
        longest = max(map(len, dealt), default=0)
        hands = [
            [hand[dealt_at] for hand in dealt if dealt_at < len(hand)]
            for dealt_at in range(longest)
        ]
        for dealt_at in hands:
            rng.shuffle(dealt_at)
        yield [point for dealt_at in hands for point in dealt_at]


def batches(points: list[FaultPoint], size: int) -> Iterator[list[FaultPoint]]:
    """Batches of points that share a workspace. Scenarios that would remove rows of other scenarios
    are kept apart, and exclusive ones have their own workspace. The first point of each scenario
    still comes before any second one."""
    firsts = {point.scenario: point for point in reversed(points)}
    others = [point for point in points if point is not firsts[point.scenario]]
    for some in (list(firsts.values()), others):
        for removing in (True, False):
            chosen = [p for p in some if SCENARIOS[p.scenario].removes_jobs is removing]
            yield from ([point] for point in chosen if SCENARIOS[point.scenario].exclusive)
            chosen = [point for point in chosen if not SCENARIOS[point.scenario].exclusive]
            for start in range(0, len(chosen), size):
                yield chosen[start : start + size]
