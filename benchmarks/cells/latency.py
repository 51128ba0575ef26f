"""From the call of enqueue to the first line of the handler, in another process."""

from __future__ import annotations

from benchmarks.cells.cell import Cell, Figure, Measured, percentile
from benchmarks.stage import Stage, finished, first, ran

P50, P99 = Figure("p50", "ms"), Figure("p99", "ms")
EVERY = 0.02  # seconds between two jobs of an idle worker
POURED = 5.0  # seconds under load


def idle(stage: Stage) -> Measured:
    client, worker = stage.client(), stage.worker()
    client.ask("drip", n=5, every=EVERY)
    ran([worker], 5)
    client.ask("drip", n=stage.jobs, every=EVERY)
    (seen,) = ran([worker], stage.jobs + 5)
    return _percentiles(seen["delays"][5:])


def loaded(stage: Stage) -> Measured:
    """At half of what it can do, which is measured first; jobs come evenly, many at once."""
    client, worker = stage.client(), stage.worker()
    times = client.ask("enqueue", n=stage.jobs, size=100, how="enqueue_many")
    seen = ran([worker], stage.jobs)
    rate = stage.jobs / (finished(client) - min(first(seen), times["ended"]))
    sent = client.ask("pour", rate=rate / 2, seconds=POURED, size=100)
    (then,) = ran([worker], stage.jobs + sent)
    return {**_percentiles(then["delays"]), "rate": rate / 2}


def _percentiles(seconds: list[float]) -> Measured:
    return {"p50": percentile(seconds, 0.5) * 1000, "p99": percentile(seconds, 0.99) * 1000}


CELLS = [
    Cell("latency", "an idle worker, one job every 20 ms", (P50, P99), idle,
         frozenset({"wake"}), jobs=200, scales=False),
    Cell("latency-half", "at half of what it can do, for 5 s",
         (P50, P99, Figure("rate", "jobs/s", more=True)), loaded,
         frozenset({"wake", "many"}), jobs=5000),
]  # fmt: skip
