"""What it costs to be there: processor, statements, memory, log, and the time to start."""

from __future__ import annotations

import subprocess
import time
from functools import partial

from benchmarks.cells.cell import Cell, Figure, Measured, percentile
from benchmarks.meters import Meter, connections, cpu_seconds, resident, wal_bytes
from benchmarks.stage import Stage, finished, first, ran

CALM = 4.0  # seconds after which a started worker is idle
WATCHED = 15.0  # seconds


def idle(stage: Stage, workers: int) -> Measured:
    stage.kill(stage.client())  # the tables are there; nobody else is
    pids = [worker.pid for worker in stage.workers(workers)]
    time.sleep(CALM)
    meter = Meter.of(stage.place)
    began_at, cpu, asked = time.monotonic(), cpu_seconds(pids), meter.read()
    time.sleep(WATCHED)
    seconds = time.monotonic() - began_at
    measured = {"cpu": (cpu_seconds(pids) - cpu) / seconds / workers * 100}
    if asked is not None:
        measured[meter.name] = ((meter.read() or 0) - asked) / seconds
        measured["connections"] = connections(stage.place) / workers
    return {**measured, "memory": resident(pids) / workers}


def growth(stage: Stage) -> Measured:
    """Between a tenth of the jobs and all of them."""
    client, worker = stage.client(), stage.worker()
    time.sleep(CALM)
    calm = resident([worker.pid])
    client.ask("enqueue", n=stage.jobs // 10, size=100, how="enqueue_many")
    ran([worker], stage.jobs // 10)
    finished(client)
    early = resident([worker.pid])
    client.ask("enqueue", n=stage.jobs - stage.jobs // 10, size=100, how="enqueue_many")
    ran([worker], stage.jobs)
    finished(client)
    return {"growth": resident([worker.pid]) - early, "idle": calm}


def log(stage: Stage) -> Measured:
    """From the first enqueue to the last finish; whatever else the server does is counted too."""
    client = stage.client()
    stage.preload(client, 10, 100)
    before = wal_bytes(stage.place)
    client.ask("enqueue", n=stage.jobs, size=100, how="enqueue_many")
    ran([stage.worker()], stage.jobs)
    finished(client)
    return {"bytes": (wal_bytes(stage.place) - before) / stage.jobs}


def start(stage: Stage) -> Measured:
    """What importing costs beyond Python itself; and from a worker's start to its first handler."""
    contender = stage.contender
    measured: Measured = {}
    if contender.imports:
        python = _run_time(stage, "-c", "pass")
        imported = _run_time(stage, "-c", f"import {contender.imports}")
        measured["import"] = (imported - python) * 1000
    if contender.help:
        measured["help"] = _run_time(stage, *contender.help) * 1000
    client = stage.client()
    client.ask("enqueue", n=1, size=100)
    worker = stage.worker()
    seen = ran([worker], 1)
    return {"first job": (first(seen) - worker.started_at) * 1000, **measured}


def _run_time(stage: Stage, *arguments: str) -> float:
    """The best of three: caches are warm."""
    times = []
    for _ in range(3):
        began_at = time.monotonic()
        command = [stage.contender.interpreter, *arguments]
        subprocess.run(
            command, cwd=stage.place.folder, check=True, stdout=subprocess.DEVNULL, timeout=60
        )
        times.append(time.monotonic() - began_at)
    return percentile(times, 0.0)


IDLE = (
    Figure("cpu", "% of a core each"),
    Figure("statements", "/s"),
    Figure("transactions", "/s"),
    Figure("connections", "each"),
    Figure("memory", "MB each"),
)
WAKE = frozenset({"wake"})

CELLS = [
    *(Cell(f"idle-{n}", f"{n} idle worker{'s' * (n > 1)}", IDLE, partial(idle, workers=n), WAKE)
      for n in (1, 10, 50)),
    Cell("memory", "a worker before its first job, and what it grows by",
         (Figure("growth", "MB"), Figure("idle", "MB")), growth, WAKE | {"many"}, jobs=500_000),
    Cell("wal", "write-ahead log of a job's whole life", (Figure("bytes", "B/job"),), log,
         frozenset({"many"}), frozenset({"postgres"})),
    Cell("start", "cold: from its start to its first job; import alone; the worker's --help",
         (Figure("first job", "ms"), Figure("import", "ms"), Figure("help", "ms")), start, WAKE),
]  # fmt: skip
