"""Jobs that are already there: from the first handler until the store says that none is left.

Starting up is not counted. Statistics are fresh and old pages are written before the clock runs.
"""

from __future__ import annotations

from functools import partial

from ..stage import Stage, finished, first, ran
from .cell import RATE, Cell, Measured


def drain(
    stage: Stage, processes: int = 1, handler: str | None = None, size: int = 100
) -> Measured:
    client = stage.client()
    stage.preload(client, stage.jobs, size)
    workers = stage.workers(processes, handler)
    seen = ran(workers, stage.jobs)
    return {"rate": stage.jobs / (finished(client) - first(seen))}


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
    Cell("steady", "enqueued in bulk and worked on at the same time", (RATE,), steady, MANY),
]  # fmt: skip
