"""What a cell is: one thing that is measured, in one or more figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.stage import Stage

Measured = dict[str, float]


@dataclass(frozen=True)
class Figure:
    name: str
    unit: str
    more: bool = False  # is better; else less is


@dataclass(frozen=True)
class Cell:
    """`figures` in the order in which they matter; `measure` returns a value for each."""

    name: str
    about: str
    figures: tuple[Figure, ...]
    measure: Callable[[Stage], Measured]
    needs: frozenset[str] = frozenset()  # what a contender must be able to do
    stores: frozenset[str] = frozenset({"postgres", "sqlite", "redis"})
    jobs: int = 20_000
    scales: bool = True  # more jobs tell more; else they only take longer
    concurrency: int | None = None  # where the cell is about something else than throughput


RATE = Figure("rate", "jobs/s", more=True)
SLOWDOWN = Figure("slowdown", "×")


def percentile(values: Sequence[float], share: float) -> float:
    """The value that so large a share does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
