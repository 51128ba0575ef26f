"""Waiting for results over the network."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from itertools import pairwise
from typing import Any

import httpx
import pytest

from outlast import Outlast
from outlast.model.settings import ServiceSettings
from outlast.ops import report
from tests.service.serving import Served, serving
from tests.support import Database, aeventually, eventually


@pytest.fixture
def work(ol: Outlast) -> Any:
    """A task that ends when it is told to, and a worker for it."""
    go = threading.Event()

    @ol.task
    def add(a: int, b: int) -> int:
        go.wait(30)
        return a + b

    stop: list[Any] = []

    async def run() -> None:
        async with ol.worker(concurrency=2, poll_max=0.1):
            ended = asyncio.Event()
            stop.append((asyncio.get_running_loop(), ended))
            await ended.wait()

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    eventually(lambda: stop)
    yield add, go
    go.set()
    loop, ended = stop[0]
    loop.call_soon_threadsafe(ended.set)
    thread.join(20)


def test_a_result_is_had_as_soon_as_there_is_one(served: Served, work: Any) -> None:
    """R162, R163: waiting ends with the job, and whoever comes later gets the same."""
    add, go = work
    job = add.enqueue(2, 3)
    early = served.get(f"/api/v1/jobs/{job.id}/result")
    assert early.status_code == 202 and early.json()["result"] is None
    threading.Timer(0.5, go.set).start()
    since = time.monotonic()
    answer = served.get(f"/api/v1/jobs/{job.id}/result?wait=30")
    assert answer.status_code == 200 and answer.json()["result"] == 5
    assert time.monotonic() - since < 10
    assert served.get(f"/api/v1/jobs/{job.id}/result").json() == answer.json()


def test_the_time_to_wait_is_kept(served: Served) -> None:
    """R162: exact to a second."""
    job = served.post("/api/v1/jobs", json={"task": "t"}).json()["id"]
    since = time.monotonic()
    answer = served.get(f"/api/v1/jobs/{job}/result?wait=1.5")
    assert answer.status_code == 202 and answer.json()["state"] == "ready"
    assert 1.4 < time.monotonic() - since < 2.9
    served.post(f"/api/v1/jobs/{job}/cancel", json={})
    gone = served.get(f"/api/v1/jobs/{job}/result?wait=9")
    assert gone.status_code == 200 and gone.json()["state"] == "cancelled"
    assert gone.json()["error"]["type"] == "Cancelled"


@pytest.mark.kinds("sqlite")
def test_there_is_room_for_so_many_and_who_hangs_up_leaves_it(ol: Outlast) -> None:
    with serving(ol, ServiceSettings(max_waiters=2)) as served:
        job = served.post("/api/v1/jobs", json={"task": "t"}).json()["id"]
        waiters = served.app.service.waiters
        path = f"/api/v1/jobs/{job}/result?wait=30"
        threads = [
            threading.Thread(target=_wait_a_moment, args=(served.url + path,)) for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        eventually(lambda: waiters.taken == 2)
        full = served.get(path)
        assert full.status_code == 503 and full.headers["retry-after"]
        for thread in threads:
            thread.join()
        eventually(lambda: waiters.taken == 0, timeout=5)


def _wait_a_moment(url: str) -> None:
    with pytest.raises(httpx.ReadTimeout):
        httpx.get(url, timeout=httpx.Timeout(5, read=1.0), trust_env=False)


@pytest.mark.kinds("sqlite")
async def test_hundreds_of_waiters_cost_a_few_questions_a_second(
    ol: Outlast, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R162: beside the look that each begins with, one thread asks for all of them."""
    asked: Counter[str] = Counter()
    ended = report.ended

    def counted(ids: Any) -> Any:
        asked["ended"] += 1
        return ended(ids)

    monkeypatch.setattr(report, "ended", counted)
    with serving(ol) as served:
        job = served.post("/api/v1/jobs", json={"task": "t"}).json()["id"]
        limits = httpx.Limits(max_connections=1000)
        async with httpx.AsyncClient(limits=limits, timeout=60, trust_env=False) as web:
            url = f"{served.url}/api/v1/jobs/{job}/result?wait=60"  # the first is still here
            calls = [asyncio.create_task(web.get(url)) for _ in range(200)]
            waiters = served.app.service.waiters
            await aeventually(lambda: waiters.taken == 200, timeout=30)
            asked.clear()
            since = time.monotonic()
            await asyncio.sleep(2)  # in which each of them would ask twice
            assert asked["ended"] <= 5 * (time.monotonic() - since) + 10, asked
            await web.post(f"{served.url}/api/v1/jobs/{job}/cancel", json={})
            answers = await asyncio.gather(*calls)
    assert {answer.json()["state"] for answer in answers} == {"cancelled"}


@pytest.mark.kinds("sqlite")
def test_counts_are_made_once_for_all_who_ask(ol: Outlast, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many callers: at most one count in `snapshot_every` seconds."""
    from outlast.service import job_counts as counting

    made = []
    census = counting.count_by_kind

    def counted() -> Any:
        made.append(time.monotonic())
        return census()

    monkeypatch.setattr(counting, "count_by_kind", counted)
    with serving(ol, ServiceSettings(snapshot_every=0.5)) as served:
        served.post("/api/v1/jobs", json={"task": "t"})
        since, calls = time.monotonic(), 0
        while (took := time.monotonic() - since) < 2.0 or calls <= 20 or len(made) < 2:
            assert served.get("/api/v1/counts").json()["total"] == 1
            assert served.get("/api/v1/queues").json()["queues"][0]["counts"]["ready"] == 1
            calls += 2
    assert len(made) <= took / 0.5 + 2
    assert all(later - earlier >= 0.45 for earlier, later in pairwise(made))
