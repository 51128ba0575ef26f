"""Ten long jobs are running when their process is killed; another worker is there, and idle."""

from __future__ import annotations

import time

from benchmarks.cells.cell import Cell, Figure, Measured
from benchmarks.process import Failed
from benchmarks.stage import Stage, ran

JOBS = 10
SECONDS = 120.0  # each of them takes; longer than we wait
MAX_RECOVERY_S = 60.0


def recovery(stage: Stage) -> Measured:
    client, victim = stage.client(), stage.worker()
    client.ask("slow", n=JOBS, seconds=SECONDS)
    ran([victim], JOBS)
    heir = stage.worker()
    client.ask("enqueue", n=1, size=100)  # the victim is full: who runs it is up and about
    ran([heir], 1)
    stage.kill(victim)
    killed_at = time.monotonic()
    while (again := heir.ask("count") - 1) < JOBS:
        if time.monotonic() > killed_at + MAX_RECOVERY_S:
            raise Failed(f"{again} of {JOBS} were running again within {MAX_RECOVERY_S:g} s")
        time.sleep(0.005)
    return {"seconds": heir.ask("seen")["last"] - killed_at}


CELLS = [
    Cell("recovery", "a worker is killed: until its ten jobs run again on another",
         (Figure("seconds", "s"),), recovery, frozenset({"slow"}), jobs=JOBS,
         scales=False, concurrency=JOBS),
]  # fmt: skip
