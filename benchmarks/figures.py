"""From samples to figures: medians, spread, ratios. Nothing here measures anything."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.contender import BARE, OUTLAST, PEER


@dataclass(frozen=True)
class Spread:
    """Some values, as they are told: the one in the middle, the least and the greatest."""

    median: float
    low: float
    high: float
    n: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread | None:
        found = sorted(values)
        return cls(statistics.median(found), found[0], found[-1], len(found)) if found else None


@dataclass(frozen=True)
class Row:
    """One contender in one figure of one cell."""

    cell: str
    figure: str
    unit: str
    contender: str
    value: Spread
    of_bare: Spread | None  # against the bare database on the same store
    of_durable: Spread | None  # Outlast: against the best peer that loses no more than we do
    best_durable: str | None
    of_store: Spread | None  # Outlast: against the best peer on the same store, whatever it loses
    best_on_store: str | None


def rows(results: dict[str, Any]) -> Iterator[Row]:
    """Everything that was measured, the best first."""
    for name, cell in results["cells"].items():
        for figure in cell["figures"]:
            yield from _rows(name, figure, cell["samples"], results["contenders"])


def _rows(
    cell: str, figure: dict[str, Any], samples: dict[str, Any], contenders: dict[str, Any]
) -> Iterator[Row]:
    found = {
        label: values
        for label, rounds in samples.items()
        if (values := {n: m[figure["name"]] for n, m in _taken(rounds) if figure["name"] in m})
    }

    def best(*, store: str | None = None, durable: bool = False) -> str | None:
        peers = [
            label
            for label in found
            if contenders[label]["kind"] == PEER
            and (contenders[label]["durable"] or not durable)
            and store in (None, contenders[label]["store"])
        ]
        return min(peers, key=place, default=None)

    def place(label: str) -> float:
        median = statistics.median(found[label].values())
        return -median if figure["more"] else median

    for label in sorted(found, key=place):
        values = found[label]
        about, spread = contenders[label], Spread.of(values.values())
        assert spread is not None
        bare = f"{BARE}/{about['store']}"
        ours = about["kind"] == OUTLAST
        durable = best(durable=True) if ours else None
        on_store = best(store=about["store"]) if ours else None
        yield Row(
            cell, figure["name"], figure["unit"], label, spread,
            of_bare=ratio(values, found.get(bare)) if label != bare else None,
            of_durable=ratio(values, found.get(durable or "")), best_durable=durable,
            of_store=ratio(values, found.get(on_store or "")), best_on_store=on_store,
        )  # fmt: skip


def _taken(rounds: list[dict[str, float] | None]) -> Iterator[tuple[int, dict[str, float]]]:
    return ((n, measured) for n, measured in enumerate(rounds) if measured is not None)


def ratio(ours: dict[int, float], theirs: dict[int, float] | None) -> Spread | None:
    """Round by round: what was measured one after the other had the same machine."""
    if theirs is None:
        return None
    return Spread.of(ours[n] / theirs[n] for n in ours.keys() & theirs.keys() if theirs[n])
