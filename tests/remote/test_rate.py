"""How fast a remote worker is, beside a local one: in short rounds that take turns, so that
whatever else the machine does concerns both. What each process costs is told too: noise changes
that less."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from outlast import Outlast
from tests.remote import app
from tests.remote.fleet import Fleet
from tests.support import Process, eventually

ROUNDS = 4
JOBS = 10_000  # in each of them
WARM = 1_000  # of these do not count
AT_ONCE = 100
TICKS = os.sysconf("SC_CLK_TCK")


class Drained(NamedTuple):
    rate: float  # jobs per second
    cost: list[float]  # CPU seconds per 1,000 jobs, of each process


@pytest.mark.campaign
@pytest.mark.timeout(900)
@pytest.mark.kinds("postgres")
def test_a_remote_worker_is_at_least_a_quarter_as_fast_as_a_local_one(fleet: Fleet) -> None:
    """R142: both drain the same queue of the same tasks."""
    server = fleet.serve(lease=15.0)
    local, remote = 0.0, 0.0
    for number in range(ROUNDS):
        here = drained(fleet, lambda: work_here(fleet))
        far = drained(fleet, lambda: fleet.work(credit=AT_ONCE), server)
        local, remote = local + here.rate / ROUNDS, remote + far.rate / ROUNDS
        print(f"{number + 1}/{ROUNDS}: local {told(here)}; remote {told(far)}", flush=True)
    print(f"local {local:,.0f}/s, remote {remote:,.0f}/s, ratio {remote / local:.2f}")
    assert remote >= local / 4


def told(drained: Drained) -> str:
    costs = " + ".join(f"{cost:.3f}" for cost in drained.cost)
    return f"{drained.rate:,.0f}/s at {costs} CPU s per 1,000"


def work_here(fleet: Fleet) -> Process:
    place = {"OUTLAST_URL": fleet.database.url, "OUTLAST_SCHEMA": fleet.database.schema}
    said = ("worker", "tests.remote.app:ol", "--url", fleet.database.url)
    return fleet.processes.python("outlast", *said, "--concurrency", AT_ONCE, env=place)


def drained(fleet: Fleet, start: Callable[[], Process], *others: Process) -> Drained:
    """From when it is warm until there is nothing left."""
    call = app.echo.job(1)
    for _ in range(JOBS // 1000):
        fleet.ol.enqueue(*[call] * 1000)
    before = done(fleet.ol)
    worker = start()
    processes = (worker, *others)
    eventually(lambda: done(fleet.ol) - before > WARM, 120, 0.01, message=worker.output)
    first, spent, began = done(fleet.ol), [cpu(one) for one in processes], time.monotonic()
    eventually(lambda: done(fleet.ol) - before == JOBS, 300, 0.05, message=worker.output)
    took, number = time.monotonic() - began, before + JOBS - first
    cost = [(cpu(p) - s) * 1000 / number for p, s in zip(processes, spent, strict=True)]
    worker.terminate()
    worker.wait(30)
    return Drained(number / took, cost)


def done(ol: Outlast) -> int:
    return ol.counts()["succeeded"]


def cpu(process: Process) -> float:
    """Seconds that it has computed for; none where nobody tells."""
    file = Path(f"/proc/{process.pid}/stat")
    if not file.exists():
        return 0.0
    fields = file.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS
