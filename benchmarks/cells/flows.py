"""What it costs that somebody waits: as many jobs with one that comes after all of them."""

from __future__ import annotations

from benchmarks.cells.cell import RATE, SLOWDOWN, Cell, Measured
from benchmarks.process import Process
from benchmarks.stage import Stage, finished, first, ran


def fan_in(stage: Stage) -> Measured:
    """Of the same number of plain jobs on the same place, a moment before."""
    client = stage.client()
    stage.preload(client, stage.jobs, 100)
    alone = _drained(stage, client, stage.jobs)
    client.ask("group", n=stage.jobs)
    stage.ground.settle(stage.place)
    rate = _drained(stage, client, stage.jobs + 1)
    return {"slowdown": alone / rate, "rate": rate}


def _drained(stage: Stage, client: Process, n: int) -> float:
    worker = stage.worker()
    began_at = first(ran([worker], n))
    rate = n / (finished(client) - began_at)
    stage.kill(worker)
    return rate


CELLS = [
    Cell("fan-in", "one job comes after all others", (SLOWDOWN, RATE), fan_in,
         frozenset({"many", "group"}), jobs=10_000),
]  # fmt: skip
