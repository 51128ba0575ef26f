"""Results as people read them: a line for each measurement, and a table of medians."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.contender import Contender
from benchmarks.figures import Spread, rows

COLUMNS = [
    "cell", "figure", "contender", "median#", "least#", "most#", "of bare#",
    "of the best as durable#", "of the best on its store#",
]  # fmt: skip


def line(cell: str, number: int, contender: Contender, told: dict[str, float] | str) -> str:
    """One measurement, as soon as it is over."""
    said = told if isinstance(told, str) else ", ".join(f"{n} {short(v)}" for n, v in told.items())
    return f"{cell}, round {number + 1}: {contender.label} {said}"


def table(results: dict[str, Any]) -> Iterator[list[str | None]]:
    last = ("", "")
    for row in rows(results):
        head = (row.cell, f"{row.figure}, {row.unit}")
        new = head != last
        last = head
        yield [
            head[0] if new else "",
            head[1] if new else "",
            row.contender,
            short(row.value.median),
            short(row.value.low),
            short(row.value.high),
            share(row.of_bare),
            share(row.of_durable, row.best_durable),
            share(row.of_store, row.best_on_store),
        ]


def remarks(results: dict[str, Any]) -> Iterator[str]:
    """What failed, and who lost more than the others could."""
    for label, why in results["unfit"].items():
        yield f"{label} does not start: {why}"
    for name, cell in results["cells"].items():
        for label, why in cell["failed"].items():
            yield f"{name}: {label} failed: {why}"
    for label, about in results["contenders"].items():
        if not about["durable"]:
            yield f"{label} is less durable: {about['durability']}"


def share(ratio: Spread | None, of: str | None = None) -> str | None:
    return None if ratio is None else f"{ratio.median:.2f}" + (f" ({of})" if of else "")


def short(value: float) -> str:
    """Three digits that mean something."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
