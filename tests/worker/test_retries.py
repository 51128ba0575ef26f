"""When a job is tried again: the delay is in the row, and every path to execution obeys it."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from itertools import pairwise

import pytest

from outlast import Context, Job, Outlast, Retry
from outlast.ops.claim import promote
from tests.support import Database, aeventually

from .working import SLACK, TIMINGS, ended, sql, work

POLL = TIMINGS["poll_max"] + 1.0


async def scheduled(ol: Outlast, job: Job) -> Job:
    """The job, once it waits for another try."""

    async def look() -> Job | None:
        now = await ol.ajob(job.id)
        return now if now.state == "scheduled" else None

    return await aeventually(look)


async def test_a_back_off_survives_the_worker_that_decided_it(ol: Outlast) -> None:
    """R044, R047: with every worker gone meanwhile, the next attempt is at run_at, not before."""
    starts: list[float] = []

    @ol.task(retry=Retry(max_attempts=3, base=1.0, jitter=0.0))
    async def fails_once(ctx: Context) -> int:
        starts.append(time.time())
        if ctx.attempt == 1:
            raise OSError("once")
        return ctx.attempt

    async with work(ol):
        job = await fails_once.aenqueue()
        waiting = await scheduled(ol, job)
    assert waiting.worker is None and waiting.failures == 1
    async with work(ol), work(ol):
        assert await ol.aresult(job.id, timeout=10) == 2
    assert waiting.run_at.timestamp() - starts[0] >= 0.9
    assert 0 <= starts[1] - waiting.run_at.timestamp() + 0.01 < POLL + SLACK


@pytest.mark.kinds("postgres")
async def test_no_path_to_execution_goes_around_the_back_off(ol: Outlast) -> None:
    """R045: with wake-ups, promotions, reclaims and polls all at work, nothing runs too early."""
    starts: list[float] = []
    ends: list[float] = []

    @ol.task(retry=Retry(max_attempts=2, base=1.2, jitter=0.0))
    async def fails() -> None:
        starts.append(time.monotonic())
        await asyncio.sleep(TIMINGS["poll_max"] * 2)
        ends.append(time.monotonic())
        raise OSError("again")

    async with work(ol, reclaim_every=0.05) as one, work(ol, reclaim_every=0.05) as two:
        job = await fails.aenqueue()
        await scheduled(ol, job)
        failed_at = time.monotonic()
        while len(starts) < 2 and time.monotonic() < failed_at + 10:
            for worker in (one, two):
                worker.on_notify(job.queue)
                worker.on_notify("")
            await ol.store.arun(promote)
            await asyncio.sleep(0.02)
        assert (await ended(ol, job)).state == "dead"
    assert len(starts) == 2
    assert starts[1] - ends[0] > 1.19
    assert starts[1] - failed_at < 1.2 + POLL + SLACK


@pytest.mark.kinds("sqlite")
async def test_the_gaps_between_attempts_grow(ol: Outlast) -> None:
    """R046, R047: each at least twice the last, up to the cap, and never a tight loop."""
    starts: list[float] = []

    @ol.task(retry=Retry(max_attempts=5, base=0.1, cap=0.4, jitter=0.0))
    async def fails() -> None:
        starts.append(time.monotonic())
        raise OSError("again")

    async with work(ol, poll_max=0.02):
        job = await fails.aenqueue()
        assert (await ended(ol, job)).state == "dead"
    gaps = [after - before for before, after in pairwise(starts)]
    for gap, least in zip(gaps, [0.1, 0.2, 0.4, 0.4], strict=True):
        assert least - 0.005 <= gap < least + POLL + SLACK


async def test_jobs_that_fail_together_do_not_come_back_together(
    ol: Outlast, database: Database
) -> None:
    """R046, R058: within the band of the policy, spread over it, and no second is crowded."""

    @ol.task(retry=Retry(base=60.0, cap=600.0, jitter=0.2))
    async def fails() -> None:
        raise OSError("all at once")

    jobs = await ol.aenqueue(*(fails.job() for _ in range(500)))
    async with work(ol, concurrency=500) as worker:
        await aeventually(lambda: worker.counts["scheduled"] == len(jobs))
    ends = {str(id): at for id, at in sql(database, "SELECT job, finished_at FROM {attempt}")}
    runs = {str(id): at for id, at in sql(database, "SELECT id, run_at FROM {job}")}
    delays = [seconds(runs[id] - ends[id]) for id in ends]
    assert len(delays) == 500
    apart = 3.0  # seconds between the two statements that write them, on a busy machine
    assert all(48.0 - apart <= delay <= 72.0 + apart for delay in delays)
    assert max(delays) - min(delays) > 0.1 * 60
    buckets = [int(delay) for delay in delays]
    assert max(buckets.count(second) for second in buckets) <= 0.1 * 500


def seconds(span: timedelta | float) -> float:
    return span.total_seconds() if isinstance(span, timedelta) else span


async def test_a_delayed_job_starts_when_it_is_due(ol: Outlast) -> None:
    """R151: never before its moment, and soon after it."""
    starts: dict[str, float] = {}

    @ol.task
    async def later(ctx: Context) -> None:
        starts[ctx.job.id] = time.time()

    async with work(ol):
        jobs = [await later.using(delay=delay).aenqueue() for delay in (0.2, 0.5, 0.8)]
        for job in jobs:
            await ol.aresult(job.id, timeout=10)
            assert 0 <= starts[job.id] - job.run_at.timestamp() + 0.01 < POLL + SLACK


async def test_a_job_that_expired_is_never_run_late(ol: Outlast) -> None:
    """R060: its deadline passed before a worker came."""
    runs = []

    @ol.task
    async def fresh(n: int) -> None:
        runs.append(n)

    stale = await fresh.using(expires=0.3).aenqueue(1)
    good = await fresh.using(expires=3600).aenqueue(2)
    await asyncio.sleep(0.5)
    async with work(ol):
        await ol.aresult(good.id, timeout=10)
        expired = await ended(ol, stale)
    assert (expired.state, expired.attempt, runs) == ("cancelled", 0, [2])
    assert expired.error is not None and expired.error["type"] == "Expired"
