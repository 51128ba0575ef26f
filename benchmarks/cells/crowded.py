"""What becomes of the rate as work piles up: the same drain in an empty table and in a full one.

Each is compared with itself on the same place, minutes apart: `slowdown` is how many times slower
it is in the crowd.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarks.cells.cell import RATE, SLOWDOWN, Cell, Measured
from benchmarks.ground import held_snapshot
from benchmarks.process import Process
from benchmarks.serve import MARK
from benchmarks.stage import Stage, finished, ran

Crowd = Callable[[Process, int], None]


def crowded(stage: Stage, crowd: Crowd, size: int) -> Measured:
    client = stage.client()
    alone = _rate(stage, client, to_the_end=True)
    crowd(client, _scaled(stage, size))
    rate = _rate(stage, client)
    return {"slowdown": alone / rate, "rate": rate}


def _scaled(stage: Stage, size: int) -> int:
    """A smaller run has a smaller crowd."""
    return int(size * min(1.0, stage.jobs / JOBS))


def _rate(stage: Stage, client: Process, to_the_end: bool = False) -> float:
    """Of the first jobs that a worker gets, between the first handler and the last mark."""
    stage.preload(client, stage.jobs, 100)
    worker = stage.worker()
    (seen,) = ran([worker], stage.jobs)
    if to_the_end:  # what is killed while it is claimed would be left to somebody else
        finished(client)
    stage.kill(worker)
    return between(seen["marks"], 0, stage.jobs // MARK - 1)


def between(marks: list[float], start: int, end: int) -> float:
    return (end - start) * MARK / (marks[end] - marks[start])


def queue_up(client: Process, n: int) -> None:
    client.ask("enqueue", n=n, size=100, how="enqueue_many")


def fill(client: Process, n: int) -> None:
    client.ask("fill", n=n)


def schedule(client: Process, n: int) -> None:
    client.ask("later", n=n)


def held(stage: Stage, how: str = "enqueue_many") -> Measured:
    """The last fifth of the jobs against the first, while somebody's snapshot keeps dead rows."""
    client = stage.client()
    stage.preload(client, stage.jobs, 100, how)
    with held_snapshot(stage.place.url):
        worker = stage.worker()
        (seen,) = ran([worker], stage.jobs)
    fifth = max(1, stage.jobs // MARK // 5)
    last = stage.jobs // MARK - 1
    then = between(seen["marks"], last - fifth, last)
    return {"slowdown": between(seen["marks"], 0, fifth) / then, "rate": then}


JOBS = 20_000
FIGURES = (SLOWDOWN, RATE)
MANY = frozenset({"many"})

CELLS = [
    Cell("queued", "1,000,000 more are queued", FIGURES,
         partial(crowded, crowd=queue_up, size=1_000_000), MANY, jobs=JOBS),
    Cell("kept", "5,000,000 finished ones are kept", FIGURES,
         partial(crowded, crowd=fill, size=5_000_000), MANY | {"fill"}, jobs=JOBS),
    Cell("future", "100,000 of a higher priority are due tomorrow", FIGURES,
         partial(crowded, crowd=schedule, size=100_000), MANY | {"later"}, jobs=JOBS),
    Cell("held", "a transaction holds an old snapshot: the last fifth against the first", FIGURES,
         held, MANY, frozenset({"postgres"}), jobs=200_000),
    Cell("held-lane", "the same with one lane, 1,000 jobs of it at once", FIGURES,
         partial(held, how="enqueue_in_one_lane"), MANY | {"lanes"}, frozenset({"postgres"}),
         jobs=200_000),
    Cell("held-lanes", "the same with 1,000 lanes, two jobs of each at once", FIGURES,
         partial(held, how="enqueue_in_lanes"), MANY | {"lanes"}, frozenset({"postgres"}),
         jobs=200_000),
]  # fmt: skip
