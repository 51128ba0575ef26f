"""The worker's loop survives whatever fails in it, and leaves nothing behind when it is stopped."""

from __future__ import annotations

import asyncio
import random

import pytest

from outlast import Context, Outlast, Retry
from outlast.model.errors import Contention, StoreUnavailable
from tests.support import Database, aeventually

from .working import BOUND, SLACK, TIMINGS, Spy, ended, sql, work

ERRORS = {
    "unavailable": StoreUnavailable(reason="cut"),
    "bug": KeyError("a bug of our own"),
}
KEEPERS = (
    "renew",
    "owned",
    "worker_heartbeat",
    "signs_of_loss",
    "take_duty",
    "expire",
    "report_duty",
)


@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.usefixtures("hasty")
async def test_a_failure_in_any_step_is_counted_and_the_loop_goes_on(
    ol: Outlast, kind: str
) -> None:
    """R023: each statement of the loop and of its helpers fails in turn; afterwards all is well."""

    @ol.task(retry=Retry(max_attempts=2, base=0.0, jitter=0.0))
    async def fails_once(ctx: Context) -> int:
        ctx.progress(1)
        if ctx.attempt == 1:
            raise OSError("once")
        return ctx.attempt

    @ol.task
    async def long() -> None:
        """Something to be renewed."""
        await stop.wait()

    stop = asyncio.Event()
    spy = Spy(ol)
    own = ("poll", "claim", "finish", "record_attempts", "record_events", "promote_due")
    async with work(ol) as worker:
        held = await long.aenqueue()
        await aeventually(lambda: spy.counts["renew"] > 0)
        for name in (*own, *KEEPERS):
            spy.refuse(name, ERRORS[kind])
        job = await fails_once.aenqueue()
        assert await ol.aresult(job.id, timeout=60) == 2
        await aeventually(lambda: not any(map(spy.refusing, (*own, *KEEPERS))), timeout=90)
        # Which loops fail depends on which of them sends a refused statement first.
        await aeventually(lambda: sum(loop.failures for loop in worker.leases.loops) >= 3)
        assert worker.counts["turn_failed"] >= 1
        assert worker.leases.alive
        stop.set()
        assert (await ended(ol, held)).fence == 1
        again = await fails_once.aenqueue()
        assert await ol.aresult(again.id, timeout=60) == 2
    attempts, events = await ol.ahistory(job.id)
    assert [each.outcome for each in attempts] == ["failed", "succeeded"]
    assert len(events) == 2, "nothing that was said is lost or told twice"


async def test_an_outcome_that_the_database_refuses_holds_up_no_other(ol: Outlast) -> None:
    """R056: handed in one by one; the one that cannot be stored fails with the reason."""
    gate = asyncio.Event()

    @ol.task(max_attempts=1)
    async def odd(n: int, ctx: Context) -> int:
        await gate.wait()
        ctx.progress(n)
        ctx.enqueue(other.using(key="taken").job(n))
        return n

    @ol.task
    async def other(n: int) -> int:
        await gate.wait()
        return n

    await other.using(key="taken", delay=3600).aenqueue(2)
    jobs = await ol.aenqueue(*(odd.job(n) for n in range(5)), *(other.job(n) for n in range(5)))
    async with work(ol, concurrency=20):
        await aeventually(lambda: ol.counts()["running"] == 10)
        gate.set()
        found = [await ended(ol, job) for job in jobs]
    states = [str(job.state) for job in found]
    assert states == ["dead", "dead", "succeeded", "dead", "dead", *["succeeded"] * 5]
    assert all("KeyConflict" in str(job.error) for job in found if job.state == "dead")
    for job in jobs[:5]:
        _, events = await ol.ahistory(job.id)
        assert len(events) == 1


async def test_a_worker_that_is_cancelled_at_any_moment_leaves_no_job_without_an_owner(
    ol: Outlast, database: Database
) -> None:
    """R021: a small sample of the campaign."""
    await cancelled_at_random(ol, database, seed=1, moments=10)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(5))
async def test_a_worker_that_is_cancelled_at_a_hundred_moments_leaves_no_job_without_an_owner(
    ol: Outlast, database: Database, seed: int
) -> None:
    """R021"""
    await cancelled_at_random(ol, database, seed, moments=100)


async def cancelled_at_random(ol: Outlast, database: Database, seed: int, moments: int) -> None:
    """In the middle of a claim, a finish, a drain: what a worker held is free, or is free as soon
    as its lease runs out; and everything still runs to its end."""

    @ol.task
    async def short(n: int) -> int:
        await asyncio.sleep(0.01)
        return n

    dice = random.Random(seed)
    number = 20 * moments
    await ol.aenqueue(*(short.job(n) for n in range(number)))
    claimed = 0
    for _ in range(moments):
        worker = work(ol, concurrency=5, lease=TIMINGS["lease"])
        running = asyncio.create_task(worker.arun())
        await asyncio.sleep(dice.uniform(0.0, 0.6))
        running.cancel()
        if dice.random() < 0.3:
            await asyncio.sleep(0)
            running.cancel()  # and once more while it tidies up
        await asyncio.gather(running, return_exceptions=True)
        assert running.done()
        claimed += worker.counts["claimed"]
    assert claimed > moments
    async with work(ol, concurrency=50):
        await aeventually(
            lambda: ol.counts()["succeeded"] == number, timeout=BOUND + SLACK + 10, interval=0.1
        )
    assert sql(database, "SELECT count(*) FROM {job} WHERE state <> 'succeeded'") == [(0,)]
    assert sql(database, "SELECT count(*) FROM {job} WHERE failures > 0") == [(0,)]


async def test_contention_is_settled_without_anyone_noticing(ol: Outlast) -> None:
    """R174: two transactions in each other's way: tried again at once, not a failed turn."""

    @ol.task
    async def fine() -> str:
        return "fine"

    spy = Spy(ol)
    spy.refuse("claim", Contention(reason="a deadlock"), times=3)
    async with work(ol) as worker:
        job = await fine.aenqueue()
        assert await ol.aresult(job.id, timeout=10) == "fine"
        assert not spy.refusing("claim")
        assert worker.counts["turn_failed"] == 0
