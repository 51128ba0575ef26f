"""Histograms of durations with a few buckets: small to store, exact to add, and accurate to within
a bucket in their percentiles."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import add

# Seconds. A bucket holds durations below its bound and not below the bound before it; the last
# one holds the rest. The statement `ended_between` has the same bounds, and a test compares them.
BOUNDS = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 300.0,
    1800.0, 7200.0,
)  # fmt: skip
BUCKETS = len(BOUNDS) + 1


@dataclass(slots=True)
class DurationHistogram:
    counts: list[int] = field(default_factory=lambda: [0] * BUCKETS)
    total: float = 0.0  # seconds

    @classmethod
    def read(cls, stored: object) -> DurationHistogram:
        """Read a stored histogram; malformed data counts as empty."""
        if isinstance(stored, list) and len(stored) == BUCKETS + 1:
            *numbers, total = stored
            return cls(list(map(int, numbers)), float(total))
        return cls()

    @property
    def stored(self) -> list[float]:
        return [*self.counts, round(self.total, 6)]

    @property
    def count(self) -> int:
        return sum(self.counts)

    def record(self, bucket: int, number: int, seconds: float) -> None:
        self.counts[bucket] += number
        if math.isfinite(seconds):  # not finite if the row has an invalid moment
            self.total += seconds

    def add(self, other: DurationHistogram) -> None:
        self.counts = list(map(add, self.counts, other.counts))
        self.total += other.total

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count else None

    def percentile(self, share: float) -> float | None:
        """The duration that a share of all does not exceed, interpolated within its bucket."""
        if not self.count:
            return None
        wanted, below = share * self.count, 0
        for bucket, number in enumerate(self.counts):
            if number and below + number >= wanted:
                low, high = bounds_of(bucket)
                return low + (high - low) * max(0.0, wanted - below) / number
            below += number
        return BOUNDS[-1]


def bounds_of(bucket: int) -> tuple[float, float]:
    low = BOUNDS[bucket - 1] if bucket else 0.0
    return low, BOUNDS[bucket] if bucket < len(BOUNDS) else 2 * BOUNDS[-1]


def merge_histograms(histograms: Iterable[DurationHistogram]) -> DurationHistogram:
    merged = DurationHistogram()
    for one in histograms:
        merged.add(one)
    return merged
