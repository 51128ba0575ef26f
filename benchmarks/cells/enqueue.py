"""Nobody works: how fast jobs are made durable."""

from __future__ import annotations

import time
from functools import partial

from benchmarks.cells.cell import RATE, Cell, Measured
from benchmarks.stage import Stage

TOGETHER = 0.3  # seconds in which all enqueuers have heard when to begin


def enqueue(stage: Stage, how: str = "enqueue") -> Measured:
    client = stage.client()
    client.ask("enqueue", n=10, size=100, how=how)  # connections are open now
    times = client.ask("enqueue", n=stage.jobs, size=100, how=how)
    return {"rate": stage.jobs / (times["ended"] - times["began"])}


def enqueue_by(stage: Stage, enqueuers: int) -> Measured:
    """Processes, each one by one."""
    clients = [stage.client() for _ in range(enqueuers)]
    for client in clients:
        client.ask("enqueue", n=10, size=100)
    each, at = stage.jobs // enqueuers, time.monotonic() + TOGETHER
    for client in clients:
        client.tell("enqueue", n=each, size=100, at=at)
    times = [client.answer() for client in clients]
    span = max(t["ended"] for t in times) - min(t["began"] for t in times)
    return {"rate": each * enqueuers / span}


CELLS = [
    Cell("enqueue", "one by one, each durable before the next", (RATE,), enqueue, jobs=4000),
    Cell("enqueue-bulk", "1,000 in one call", (RATE,), partial(enqueue, how="enqueue_many"),
         frozenset({"many"})),
    Cell("enqueue-within", "each with a row of the caller's, in the caller's transaction", (RATE,),
         partial(enqueue, how="enqueue_within"), frozenset({"within"}), jobs=4000),
    Cell("enqueue-8", "eight processes, each one by one", (RATE,),
         partial(enqueue_by, enqueuers=8), jobs=8000),
]  # fmt: skip
