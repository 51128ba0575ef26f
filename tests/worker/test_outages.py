"""A worker whose database is away: it asks ever more calmly, and goes on when it is back."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator

import pytest

from outlast import Context, Outlast
from outlast.model.errors import StoreUnavailable
from outlast.worker.loops import Backoff, Loop
from tests.support import Database, Proxy, aeventually

from .working import SLACK, ended, work

LOOPS = 8  # the worker's own, its watch, and the keeper's


@pytest.fixture
def far(database: Database, proxy: Proxy) -> Iterator[Outlast]:
    with Outlast(proxy.url(database.url), schema=database.schema) as opened:
        yield opened


async def outage(
    far: Outlast, proxy: Proxy, caplog: pytest.LogCaptureFixture, seconds: float, most: int
) -> None:
    """The database refuses every connection for a while, with an event said every few moments."""

    @far.task
    async def quick() -> str:
        return "quick"

    @far.task
    async def talks(ctx: Context) -> None:
        while not ctx.cancelled.is_set():
            ctx.progress(1)  # news for the loop, which must not make it hurry
            await asyncio.sleep(0.02)

    caplog.set_level(logging.INFO, logger="outlast")
    async with work(far, lease=3600, renew_every=1.0) as worker:
        await talks.aenqueue()
        await far.aresult((await quick.aenqueue()).id, timeout=10)
        proxy.refuse()
        caplog.clear()
        refused, used = proxy.accepted, time.process_time()
        await asyncio.sleep(seconds)
        attempts, used = proxy.accepted - refused, time.process_time() - used
        lines = len([record for record in caplog.records if record.name.startswith("outlast")])
        proxy.accept()
        failed = worker.counts["turn_failed"]
        assert 1 <= failed <= most
        # A broken connection is replaced twice at once; only then is the database away.
        assert attempts <= LOOPS * (most + 2)
        assert lines <= attempts + LOOPS
        assert used < 0.05 * seconds + 0.5
        before = time.monotonic()
        assert await far.aresult((await quick.aenqueue()).id, timeout=40) == "quick"
        assert time.monotonic() - before < 30 + SLACK
        await aeventually(lambda: worker._backoff.failures == 0)
        for job in await far.ajobs(state="running"):
            await far.acancel(job.id)
            await ended(far, job, timeout=40)


@pytest.mark.kinds("postgres")
async def test_a_database_that_is_away_is_asked_ever_more_calmly(
    far: Outlast, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    """R014: a small sample of the campaign."""
    await outage(far, proxy, caplog, seconds=2.5, most=4)


@pytest.mark.campaign
@pytest.mark.kinds("postgres")
async def test_a_database_that_is_away_for_long_is_asked_ever_more_calmly(
    far: Outlast, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    """R014"""
    await outage(far, proxy, caplog, seconds=20.0, most=12)


@pytest.mark.kinds("postgres")
async def test_a_worker_that_starts_before_its_database_waits_for_it(
    ol: Outlast, far: Outlast, proxy: Proxy
) -> None:
    """R178: no crash, and work begins when the database is there."""

    @far.task
    async def quick() -> str:
        return "quick"

    proxy.refuse()
    async with work(far):
        await asyncio.sleep(0.3)
        job = (await ol.aenqueue(quick.job()))[0]
        proxy.accept()
        assert await ol.aresult(job.id, timeout=10) == "quick"


def test_back_off_grows_to_its_cap_with_jitter_and_starts_again_after_a_success() -> None:
    """R014: 1 s, then 2.5 times longer each time, up to 30 s."""
    backoff = Backoff()
    waits = [backoff.failed() for _ in range(2000)]
    for wait, plain in zip(waits, [1.0, 2.5, 6.25, 15.625, *[30.0] * 1996], strict=True):
        assert 0.7 * plain <= wait <= plain
    assert len(set(waits)) > 1990
    assert sum(wait <= 30 for wait in waits) == 2000
    backoff.succeeded()
    assert backoff.failed() <= 1.0


async def test_a_loop_outlives_every_error_and_forgets_those_of_long_ago() -> None:
    """R023: counted, backed off; one that ran well for long starts anew."""
    passes = 0

    async def once() -> float:
        nonlocal passes
        passes += 1
        if passes == 4:
            await asyncio.sleep(0.1)  # longer than the cap: this one was fine for long
        if passes <= 4:
            raise [StoreUnavailable(reason="away"), ValueError("a bug"), KeyError("x")][passes % 3]
        return 3600.0

    loop = Loop("test", once, 0.01, Backoff(first=0.01, cap=0.05))
    running = asyncio.create_task(loop.run())
    await aeventually(lambda: loop.passes == 5)
    assert loop.failures == 4
    assert loop._backoff.failures == 0
    loop.poke()
    await aeventually(lambda: loop.passes == 6)
    loop.stop()
    await asyncio.wait_for(running, 5)
