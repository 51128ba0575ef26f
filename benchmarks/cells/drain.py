"""Jobs that are already there: from the first handler until the store says that none is left; where
there are several workers, from the first handler of the last of them.

Starting up is not counted. Statistics are fresh and old pages are written before the clock runs.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import partial
from typing import Any

from benchmarks.cells.cell import RATE, Cell, Measured
from benchmarks.serve import MARK
from benchmarks.stage import Stage, finished, first, ran


def drain(
    stage: Stage,
    processes: int = 1,
    handler: str | None = None,
    size: int = 100,
    how: str = "enqueue_many",
) -> Measured:
    client = stage.client()
    stage.preload(client, stage.jobs, size, how)
    workers = stage.workers(processes, handler)
    began_at, before = all_at_work(ran(workers, stage.jobs))
    return {"rate": (stage.jobs - before) / (finished(client) - began_at)}


def all_at_work(seen: list[dict[str, Any]]) -> tuple[float, float]:
    """When the last of the workers began, and how many jobs the others had run by then: they are
    started together, but do not begin together. One that came when half was done hardly took part,
    and then everything counts from the first."""
    began_at = max(each["marks"][0] for each in seen if each["marks"])
    before = sum(_count_at(each, began_at) for each in seen)
    if before > sum(each["count"] for each in seen) / 2:
        return first(seen), 0.0
    return began_at, before


def _count_at(seen: dict[str, Any], moment: float) -> float:
    """How many a worker had run, as if evenly between two marks."""
    passed = bisect_left(seen["marks"], moment)
    if not passed:
        return 0.0
    begun = seen["marks"][passed - 1]
    if passed < len(seen["marks"]):
        then, ran_since = seen["marks"][passed], MARK
    else:
        then, ran_since = seen["last"], seen["count"] - (passed - 1) * MARK
    share = (moment - begun) / (then - begun) if then > begun else 0.0
    return (passed - 1 + share * ran_since / MARK) * MARK


def steady(stage: Stage) -> Measured:
    """Enqueued in bulk while they are worked on: from the first enqueue to the last finish."""
    client = stage.client()
    worker = stage.worker()
    client.ask("enqueue", n=1, size=100, how="enqueue_many")
    ran([worker], 1)
    times = client.ask("enqueue", n=stage.jobs, size=100, how="enqueue_many")
    ran([worker], stage.jobs + 1)
    return {"rate": stage.jobs / (finished(client) - times["began"])}


MANY = frozenset({"many"})

CELLS = [
    Cell("drain", "one process; no-op, async where that can be; 100 bytes", (RATE,), drain, MANY),
    Cell("drain-2", "two processes", (RATE,),
         partial(drain, processes=2), MANY),
    Cell("drain-sync", "one process, sync handlers in threads", (RATE,),
         partial(drain, handler="sync"), MANY | {"sync"}),
    Cell("drain-2k", "one process, 2,000 bytes", (RATE,),
         partial(drain, size=2000), MANY),
    Cell("drain-lanes", "one process; 1,000 lanes, two jobs of each at once", (RATE,),
         partial(drain, how="enqueue_in_lanes"), MANY | {"lanes"}),
    Cell("drain-lane", "one process; one lane, 1,000 jobs of it at once", (RATE,),
         partial(drain, how="enqueue_in_one_lane"), MANY | {"lanes"}),
    Cell("steady", "enqueued in bulk and worked on at the same time", (RATE,), steady, MANY),
]  # fmt: skip
