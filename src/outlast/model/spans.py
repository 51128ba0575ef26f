"""How long things took, counted in a few classes: small to keep, exact to add, good for percentiles
to within a class."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import add

# Seconds. A class holds what took less than its bound, and no less than the one before; the last
# one holds the rest. The statement `ended_between` has the same bounds, and a test compares them.
BOUNDS = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 300.0,
    1800.0, 7200.0,
)  # fmt: skip
CLASSES = len(BOUNDS) + 1


@dataclass(slots=True)
class Spans:
    numbers: list[int] = field(default_factory=lambda: [0] * CLASSES)
    total: float = 0.0  # seconds

    @classmethod
    def read(cls, kept: object) -> Spans:
        """What `kept` wrote; what somebody else wrote there counts as nothing."""
        if isinstance(kept, list) and len(kept) == CLASSES + 1:
            *numbers, total = kept
            return cls(list(map(int, numbers)), float(total))
        return cls()

    @property
    def kept(self) -> list[float]:
        return [*self.numbers, round(self.total, 6)]

    @property
    def number(self) -> int:
        return sum(self.numbers)

    def note(self, place: int, number: int, seconds: float) -> None:
        self.numbers[place] += number
        if math.isfinite(seconds):  # else of a row with a moment that is none
            self.total += seconds

    def add(self, other: Spans) -> None:
        self.numbers = list(map(add, self.numbers, other.numbers))
        self.total += other.total

    @property
    def mean(self) -> float | None:
        return self.total / self.number if self.number else None

    def percentile(self, share: float) -> float | None:
        """So many of all took no longer; evenly spread within a class."""
        if not self.number:
            return None
        wanted, below = share * self.number, 0
        for place, number in enumerate(self.numbers):
            if number and below + number >= wanted:
                low, high = bounds_of(place)
                return low + (high - low) * max(0.0, wanted - below) / number
            below += number
        return BOUNDS[-1]


def bounds_of(place: int) -> tuple[float, float]:
    low = BOUNDS[place - 1] if place else 0.0
    return low, BOUNDS[place] if place < len(BOUNDS) else 2 * BOUNDS[-1]


def summed(all_of: Iterable[Spans]) -> Spans:
    made = Spans()
    for one in all_of:
        made.add(one)
    return made
