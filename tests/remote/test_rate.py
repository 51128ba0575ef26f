"""How fast a remote worker is, beside a local one."""

from __future__ import annotations

import time

import pytest

from outlast import Outlast
from tests.remote import far_app
from tests.remote.fleet import Fleet
from tests.support import eventually

JOBS = 40_000
AT_ONCE = 100


@pytest.mark.campaign
@pytest.mark.timeout(900)
@pytest.mark.kinds("postgres")
def test_a_remote_worker_is_at_least_a_quarter_as_fast_as_a_local_one(fleet: Fleet) -> None:
    """Both drain the same queue of the same tasks, one after the other, in one run."""
    local = drained(fleet, lambda: work_here(fleet))
    fleet.serve(lease=15.0)
    remote = drained(fleet, lambda: fleet.work(credit=AT_ONCE))
    print(f"local {local:,.0f}/s, remote {remote:,.0f}/s, ratio {remote / local:.2f}")
    assert remote >= local / 4


def work_here(fleet: Fleet) -> object:
    place = {"OUTLAST_URL": fleet.database.url, "OUTLAST_SCHEMA": fleet.database.schema}
    said = ("worker", "tests.remote.far_app:ol", "--url", fleet.database.url)
    return fleet.processes.python("outlast", *said, "--concurrency", AT_ONCE, env=place)


def drained(fleet: Fleet, start: object) -> float:
    """Jobs per second, from when it is warm until there is nothing left."""
    call = far_app.echo.job(1)
    for _ in range(JOBS // 1000):
        fleet.ol.enqueue(*[call] * 1000)
    before = fleet.ol.counts()["succeeded"]
    worker = start()  # type: ignore[operator]
    eventually(lambda: done(fleet.ol) - before > 1000, 60, 0.01, message=worker.output)
    began, first = time.monotonic(), done(fleet.ol)
    eventually(lambda: done(fleet.ol) - before == JOBS, 300, 0.05, message=worker.output)
    rate = (done(fleet.ol) - first) / (time.monotonic() - began)
    worker.terminate()
    worker.wait(30)
    return rate


def done(ol: Outlast) -> int:
    return ol.counts()["succeeded"]
