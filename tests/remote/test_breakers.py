"""Circuit breakers for remote workers: their server keeps them."""

from __future__ import annotations

from pathlib import Path

import pytest

from outlast import Breaker, Outlast, Retry
from outlast.model.breaker import Circuit, OpenBreaker
from outlast.model.ids import new_job_id
from outlast.ops.breakers import open_breaker
from outlast.remote import RemoteWorker
from outlast.worker import breaker
from tests.remote.test_worker import working
from tests.service.serving import Served
from tests.support import aeventually

QUICK = Breaker(failures=3, probe_first=0.1, probe_cap=0.2)
IMPATIENT = Retry(max_attempts=3, base=0.01, cap=0.02, jitter=0.0)


async def test_an_outage_stops_the_offers(served: Served, ol: Outlast, tmp_path: Path) -> None:
    """R054, R223: single jobs and a batch; unspent, probed one at a time, closed by a success."""
    up, calls = False, 0

    def call() -> None:
        nonlocal calls
        calls += 1
        if not up:
            raise ConnectionError("refused")

    @ol.task(retry=IMPATIENT, breaker=QUICK)
    async def push(n: int) -> None:
        call()

    @ol.task(batch=20, wait=0.1, retry=IMPATIENT, breaker=QUICK, queue="many")
    async def publish(items: list[int]) -> None:
        call()

    jobs = [push.job(n) for n in range(60)] + [publish.job(n) for n in range(60)]
    await ol.aenqueue(*jobs)
    async with working(served, tmp_path, concurrency=20):
        await aeventually(ol.abreakers, 20)
        before = calls
        await aeventually(lambda: _more(calls > before + 10), 30)

        async def held() -> bool:  # what was in flight as it opened comes back in time
            return (await ol.acounts())["ready"] > 90

        await aeventually(held, 20, message=lambda: f"{ol.counts()} {ol.breakers()}")
        assert (await ol.acounts())["dead"] == 0
        up = True

        async def done() -> bool:
            return (await ol.acounts())["succeeded"] == 120

        await aeventually(done, 30, message=lambda: f"{ol.counts()} {ol.breakers()}")
    assert max(job.failures for job in await ol.ajobs()) <= 1


async def test_a_worker_of_one_tenant_does_not_hold_back_the_others(
    served: Served, ol: Outlast, tmp_path: Path
) -> None:
    """R145, R223: a breaker holds back everybody's jobs, so such a worker opens none."""

    @ol.task(retry=IMPATIENT, breaker=QUICK, tenant="acme")
    async def push(n: int) -> None:
        raise ConnectionError("refused")

    await ol.aenqueue(*(push.job(n) for n in range(10)))
    token = served.token("work", tenant="acme")
    async with RemoteWorker(served.url, token, ol, concurrency=4, spool=tmp_path):

        async def dead() -> bool:
            return (await ol.acounts())["dead"] == 10

        await aeventually(dead, 30, message=lambda: f"{ol.counts()}")
    assert await ol.abreakers() == []


async def test_a_worker_of_one_tenant_does_not_wait_for_a_probe_that_nobody_makes(
    served: Served, ol: Outlast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R223: who opened the breaker is gone, and workers of a tenant may not probe it."""
    monkeypatch.setattr(breaker, "UNPROBED_AFTER_S", 1.0)

    @ol.task(breaker=QUICK, tenant="acme")
    async def push(n: int) -> None: ...

    await ol.aenqueue(*(push.job(n) for n in range(5)))
    down = OpenBreaker(Circuit("default", push.name), new_job_id(), "ConnectionError")
    await ol.store.arun(open_breaker, down, "refused", "gone", 0.5)
    token = served.token("work", tenant="acme")
    async with RemoteWorker(served.url, token, ol, concurrency=4, spool=tmp_path):

        async def succeeded() -> bool:
            return (await ol.acounts())["succeeded"] == 5

        await aeventually(succeeded, 15, message=lambda: f"{ol.counts()}")


async def _more(value: bool) -> bool:
    return value
