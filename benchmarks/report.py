"""The page of the documentation: tables and pictures, made from what a run has written.

    python -m benchmarks report .bench/results.json

replaces what stands between the two marks in docs/explanation/benchmarks.md, and the pictures in
the folder beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.contender import BARE, OUTLAST
from benchmarks.figures import Row, rows
from benchmarks.plot import Bar, bars
from benchmarks.show import share, short

HEAD = """\
| | | median | spread | of bare | of the best as durable | of the best on its store |
|---|---|---:|---:|---:|---:|---:|"""
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"


def merged(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Several runs as one: a cell that was measured twice is as it was the last time."""
    together: dict[str, Any] = {**runs[0], "contenders": {}, "cells": {}}
    for run in runs:
        together["contenders"] |= run["contenders"]
        together["cells"] |= run["cells"]
    return together


def write(results: dict[str, Any], page: Path) -> list[Path]:
    """Put everything in its place; the files that were written."""
    before, found, rest = page.read_text().partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise ValueError(f"{page} has no place for results: {BEGIN} … {END}")
    folder = page.with_suffix("")
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.svg"):
        old.unlink()
    pictures = dict(_pictures(results))
    for name, picture in pictures.items():
        (folder / name).write_text(picture)
    body = "\n\n".join([*_conditions(results), *_cells(results, folder.name), *_about(results)])
    page.write_text(f"{before}{BEGIN}\n\n{body}\n\n{END}{after}")
    return [page, *(folder / name for name in pictures)]


def _pictures(results: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """One for the first figure of each cell."""
    for name, measured in groupby(rows(results), lambda row: row.cell):
        first = [row for row in measured if row.figure == _figures(results, name)[0]["name"]]
        if first:
            title = f"{name}: {first[0].figure}"
            yield f"{name}.svg", bars(title, first[0].unit, [_bar(results, r) for r in first])


def _figures(results: dict[str, Any], cell: str) -> list[dict[str, Any]]:
    figures: list[dict[str, Any]] = results["cells"][cell]["figures"]
    return figures


def _bar(results: dict[str, Any], row: Row) -> Bar:
    about = results["contenders"][row.contender]
    kind = about["kind"]
    if kind not in (OUTLAST, BARE):
        kind = "durable" if about["durable"] else "less"
    value = row.value
    return Bar(row.contender, kind, value.median, value.low, value.high, short(value.median))


def _conditions(results: dict[str, Any]) -> Iterator[str]:
    told = results["conditions"]
    machine, postgres, sqlite = told["machine"], told["postgres"], told["sqlite"]
    lines = [
        f"{told['measured_at'][:10]}, Outlast {told['outlast']}, concurrency"
        f" {told['concurrency']}. {machine['processor']}, {machine['cores']} cores,"
        f" {machine['memory_gb']} GB, {machine['system']}, Python {machine['python']}.",
        f"SQLite {sqlite['version']} on {sqlite['file_system']}, synchronous=FULL.",
    ]
    if postgres:
        version = postgres["server_version"].split()[0]
        keys = ("fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "max_wal_size")
        lines.append(f"PostgreSQL {version}: {', '.join(f'{k} {postgres[k]}' for k in keys)}.")
    if told["redis"]:
        lines.append(f"Redis {', '.join(f'{k} {v}' for k, v in told['redis'].items())}.")
    yield "\n".join(lines)


def _cells(results: dict[str, Any], folder: str) -> Iterator[str]:
    for name, measured in groupby(rows(results), lambda row: row.cell):
        cell = results["cells"][name]
        rounds = max(map(len, cell["samples"].values()))
        about = f"{cell['about'].capitalize()}; {cell['jobs']:,} jobs; rounds: {rounds}."
        yield f"### {name}\n\n{about}"
        yield f"![{name}]({folder}/{name}.svg)"
        yield "\n".join([HEAD, *map(_line, measured)])
        if cell["failed"]:
            yield "\n".join(f"- {who}: {_brief(why)}" for who, why in cell["failed"].items())


def _line(row: Row) -> str:
    spread = f"{short(row.value.low)}–{short(row.value.high)}"
    ratios = (
        share(row.of_bare),
        share(row.of_durable, row.best_durable),
        share(row.of_store, row.best_on_store),
    )
    cells = [row.contender, f"{row.figure}, {row.unit}", short(row.value.median), spread]
    return f"| {' | '.join([*cells, *(ratio or '' for ratio in ratios)])} |"


def _brief(text: str) -> str:
    return " ".join(text.split())[:160]


def _about(results: dict[str, Any]) -> Iterator[str]:
    """Who took part: what is lost in a crash, what was set, and the versions."""
    lines = ["### Who took part", "", "| | what a crash loses, and what is kept | set | versions |"]
    lines.append("|---|---|---|---|")
    for label, about in results["contenders"].items():
        versions = ", ".join(f"{package} {v}" for package, v in about["versions"].items())
        lines.append(f"| {label} | {about['durability']} | {about['settings']} | {versions} |")
    yield "\n".join(lines)
