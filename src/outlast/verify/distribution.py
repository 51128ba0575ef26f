"""Distribution of measured times: percentiles, and a histogram for the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable

BINS = 12
PLOT_WIDTH = 40
BIN_WIDTHS_S = (
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.5,
    1.0,
    2.0,
    5.0,
    10.0,
)  # seconds a bar may span


class Distribution:
    def __init__(self, seconds: Iterable[float]) -> None:
        self.sorted = sorted(seconds)

    def __len__(self) -> int:
        return len(self.sorted)

    def percentile(self, share: float) -> float:
        """The percentile of this share, always a measured value."""
        if not self.sorted:
            return math.nan
        return self.sorted[max(0, math.ceil(share * len(self.sorted)) - 1)]

    def as_json(self) -> dict[str, float | int | None]:
        shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
        found = {name: round(self.percentile(share), 3) for name, share in shares.items()}
        return {"n": len(self), **{k: None if math.isnan(v) else v for k, v in found.items()}}

    def plot(self) -> list[str]:
        """One line per bar; the last one has all longer times."""
        if not self.sorted:
            return []
        step = next((s for s in BIN_WIDTHS_S if self.sorted[-1] < s * BINS), BIN_WIDTHS_S[-1])
        counts = [0] * (min(BINS - 1, int(self.sorted[-1] / step)) + 1)
        for value in self.sorted:
            counts[min(BINS - 1, int(value / step))] += 1
        largest = max(counts)
        return [
            f"{number * step:7.3f} s "
            f" {'█' * math.ceil(count / largest * PLOT_WIDTH):<{PLOT_WIDTH}}  {count}"
            for number, count in enumerate(counts)
        ]
