"""Who follows whom: round by round, one contender after the other, A B C, A B C, …

A machine that is slow for a minute is then slow for everybody.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from benchmarks import conditions
from benchmarks.cells import CELLS, Cell
from benchmarks.contender import Contender
from benchmarks.ground import Ground
from benchmarks.process import Failed
from benchmarks.stage import staged
from outlast.model.errors import StoreError

Watch = Callable[[str, int, Contender, "dict[str, float] | str"], None]


@dataclass(frozen=True)
class Plan:
    """What is to be measured."""

    cells: list[str]
    rounds: int = 3
    jobs: int | None = None  # else what suits each cell
    concurrency: int = 100

    def jobs_of(self, cell: Cell) -> int:
        if self.jobs is None:
            return cell.jobs
        return self.jobs if cell.scales else min(self.jobs, cell.jobs)


def measure(
    plan: Plan,
    contenders: list[Contender],
    ground: Ground,
    watch: Watch,
    keep: Callable[[dict[str, Any]], None] = lambda _: None,
) -> dict[str, Any]:
    """Everything, as it is written to a file: samples, and all that one must know to judge them.
    `keep` gets it after each cell, since a run may take hours."""
    there = [contender for contender in contenders if ground.has(contender.store)]
    results: dict[str, Any] = {"conditions": conditions.of(ground, plan), "contenders": {}}
    results |= {"unfit": {}, "cells": {}}
    for contender in there:
        try:
            results["contenders"][contender.label] = _told(contender, ground)
        except Failed as failure:
            results["unfit"][contender.label] = str(failure)
    fit = [contender for contender in there if contender.label in results["contenders"]]
    for name in plan.cells:
        results["cells"][name] = _cell(CELLS[name], plan, fit, ground, watch)
        keep(results)
    return results


def _cell(
    cell: Cell, plan: Plan, contenders: list[Contender], ground: Ground, watch: Watch
) -> dict[str, Any]:
    out = {c.label: why for c in contenders if (why := _left_out(c, cell))}
    taking_part = [c for c in contenders if c.label not in out]
    samples: dict[str, list[dict[str, float] | None]] = {c.label: [] for c in taking_part}
    failed: dict[str, str] = {}
    for number in range(plan.rounds):
        for contender in taking_part:
            if contender.label in failed:
                continue
            told = _once(cell, plan, contender, ground)
            if isinstance(told, str):
                failed[contender.label] = told
            samples[contender.label].append(None if isinstance(told, str) else told)
            watch(cell.name, number, contender, told)
    return {
        "about": cell.about,
        "jobs": plan.jobs_of(cell),
        "figures": [asdict(figure) for figure in cell.figures],
        "samples": samples,
        "failed": failed,
        "left_out": out,
    }


def _left_out(contender: Contender, cell: Cell) -> str | None:
    if contender.store not in cell.stores:
        return f"not on {contender.store}"
    if lacks := contender.lacks(cell.needs):
        return f"cannot: {', '.join(lacks)}"
    return None


def _once(cell: Cell, plan: Plan, contender: Contender, ground: Ground) -> dict[str, float] | str:
    """One measurement, or why there is none."""
    concurrency = cell.concurrency or plan.concurrency
    try:
        with staged(contender, ground, plan.jobs_of(cell), concurrency) as stage:
            return cell.measure(stage)
    except (Failed, StoreError) as failure:
        return str(failure)


def _told(contender: Contender, ground: Ground) -> dict[str, Any]:
    """What it is, with the versions that its own environment has."""
    about = asdict(replace(contender, interpreter=""))
    about |= {"file": contender.file.name, "can": sorted(contender.can)}
    del about["interpreter"]
    with staged(contender, ground, 1, 1) as stage:
        process = stage.start()
        return {**about, "versions": process.ask("versions", packages=contender.packages)}
