"""A lease is held as long as its owner lives, and let go before anyone else may take over."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from outlast import ClaimLost, Context, Outlast
from tests.support import Database, Proxy, aeventually

from .working import BOUND, SLACK, Spy, ended, sql, started, work

SHORT = {"lease": 0.6, "renew_every": 0.15, "reclaim_every": 0.1}


@pytest.fixture
def far(database: Database, proxy: Proxy) -> Iterator[Outlast]:
    """The same database, over a line that can be cut."""
    with Outlast(proxy.url(database.url), schema=database.schema) as opened:
        yield opened


async def test_a_handler_ten_leases_long_runs_once_even_beside_one_that_blocks_the_loop(
    ol: Outlast,
) -> None:
    """R029: renewals come from a thread of their own, and a blocked loop does not lose what else
    is in its hands; another worker with nothing to do never takes over."""
    runs: Counter[str] = Counter()

    @ol.task
    async def patient(ctx: Context) -> str:
        runs["patient"] += 1
        await asyncio.sleep(10 * SHORT["lease"])
        ctx.progress(1)
        return "patient"

    @ol.task
    async def blocking() -> str:
        runs["blocking"] += 1
        time.sleep(8 * SHORT["lease"])
        return "blocking"

    async with work(ol, **SHORT) as one:
        jobs = await ol.aenqueue(patient.job(), blocking.job())
        async with work(ol, **SHORT) as two:
            results = [await ol.aresult(job.id, timeout=30) for job in jobs]
            counts = one.counts + two.counts
    assert results == ["patient", "blocking"]
    assert runs == {"patient": 1, "blocking": 1}
    assert (counts["lost"], counts["reclaimed"], counts["refused"]) == (0, 0, 0)
    assert {(await ol.ajob(job.id)).fence for job in jobs} == {1}


async def test_claims_in_hand_do_not_run_out_while_the_first_of_them_takes_long(
    ol: Outlast,
) -> None:
    """R034: ten are claimed at once, one of them keeps the loop for three leases."""
    runs: Counter[int] = Counter()

    @ol.task
    async def step(n: int) -> None:
        runs[n] += 1
        if n == 0:
            time.sleep(3 * SHORT["lease"])

    jobs = await ol.aenqueue(*(step.job(n) for n in range(10)))
    async with work(ol, concurrency=10, **SHORT), work(ol, queues=["other"], **SHORT):
        for job in jobs:
            await ol.aresult(job.id, timeout=20)
    assert runs == dict.fromkeys(range(10), 1)


async def test_a_claim_that_never_reached_its_worker_is_put_back_unspent(
    ol: Outlast, database: Database
) -> None:
    """R021, R038: ours in the database and in nobody's hands: released after two renewals."""

    @ol.task
    async def fine(ctx: Context) -> int:
        return ctx.fence

    async with work(ol) as worker:
        await ol.apause("default")
        job = await fine.aenqueue()
        sql(
            database,
            "UPDATE {job} SET state = 'running', attempt = 1, fence = 1, worker = ?,"
            " started_at = run_at, lease_until = run_at WHERE id = ?",
            worker.id, job.id,
        )  # fmt: skip
        later = "run_at + 3600" if database.is_sqlite else "run_at + interval '1 hour'"
        sql(database, f"UPDATE {{job}} SET lease_until = {later} WHERE id = ?", job.id)
        await ol.aresume("default")
        assert await ol.aresult(job.id, timeout=10) == 2
        assert worker.counts["released"] == 1
    done = await ol.ajob(job.id)
    assert (done.attempt, done.crashes, done.failures) == (1, 0, 0)


@pytest.mark.kinds("postgres")
async def test_a_pause_of_renewals_shorter_than_the_lease_costs_nothing(
    ol: Outlast, far: Outlast, proxy: Proxy, database: Database
) -> None:
    """R029: nothing is renewed for 0.8 of the lease, and the owner is still the owner."""
    gate = asyncio.Event()
    runs: Counter[str] = Counter()

    @far.task
    async def patient(ctx: Context) -> str:
        runs["patient"] += 1
        await gate.wait()
        return "patient"

    lease = 4.0
    spy = Spy(far)
    async with work(far, lease=lease) as owner, work(ol, queues=["other"]):
        job = await patient.aenqueue()
        await started(ol, job)
        renewals = spy.counts["renew"]
        await aeventually(lambda: spy.counts["renew"] > renewals and renewed(database))
        proxy.freeze()
        await asyncio.sleep(0.8 * lease)
        proxy.thaw()
        gate.set()
        assert await ol.aresult(job.id, timeout=10) == "patient"
        assert (owner.counts["lost"], owner.counts["refused"]) == (0, 0)
    assert (await ol.ajob(job.id)).fence == 1
    assert runs == {"patient": 1}


def renewed(database: Database) -> bool:
    """Whether the only running job has nearly all of its lease before it."""
    query = "SELECT lease_until > now() + interval '3.9 seconds' FROM {job} WHERE state = 'running'"
    return sql(database, query) == [(True,)]


@pytest.mark.kinds("postgres")
async def test_a_worker_that_cannot_renew_stops_its_handlers_before_its_leases_end(
    ol: Outlast, far: Outlast, proxy: Proxy
) -> None:
    """R031: the handler is told, its later writes are refused, and the job runs elsewhere."""
    stopped: list[float] = []
    refused: list[str] = []

    @far.task
    async def stranded(ctx: Context) -> str:
        try:
            await asyncio.sleep(30)
        finally:
            stopped.append(time.monotonic())
            for write in (lambda: ctx.progress(1), lambda: ctx.log("x"), ctx.enqueue):
                try:
                    write()
                except ClaimLost:
                    refused.append("lost")
        return "stranded"

    @ol.task(name="stranded")
    async def rescued(ctx: Context) -> str:
        return f"rescued, fence {ctx.fence}"

    async with work(far, lease=2.0) as owner:
        job = await stranded.aenqueue()
        await started(ol, job)
        proxy.freeze()
        frozen_at = time.monotonic()
        await aeventually(lambda: stopped)
        assert stopped[0] - frozen_at <= 2.0 + 0.5, "within the lease, and the time to say so"
        async with work(ol):
            assert await ol.aresult(job.id, timeout=BOUND + SLACK) == "rescued, fence 2"
        assert owner.counts["lost"] == 1
        proxy.thaw()
    assert refused == ["lost"] * 3
    done = await ol.ajob(job.id)
    assert (done.result, done.crashes) == ("rescued, fence 2", 1)


@pytest.mark.kinds("postgres")
@pytest.mark.parametrize(("share", "least"), [(0.5, "kept"), (2.0, "lost")])
async def test_an_outage_of_the_database_never_leads_to_two_results(
    ol: Outlast, far: Outlast, proxy: Proxy, share: float, least: str
) -> None:
    """R033: a job outlasts half a lease without the database; after two, exactly one result
    counts, and it is that of the last claim."""
    runs: list[int] = []
    lease = 2.0

    for app in (ol, far):

        @app.task(name="patient")
        async def patient(ctx: Context) -> int:
            runs.append(ctx.fence)
            if ctx.fence == 1:
                await asyncio.sleep(share * lease + 0.5)
            return ctx.fence

    async with work(far, lease=lease) as cut_off:
        job = (await ol.aenqueue(patient.job()))[0]
        await started(ol, job)
        proxy.refuse()
        await asyncio.sleep(share * lease)
        proxy.accept()
        async with work(ol):
            done = await ended(ol, job, timeout=30)
        assert cut_off.counts["lost"] == (0 if least == "kept" else 1)
    assert done.result == done.fence == max(runs)
    assert len(runs) == (1 if least == "kept" else 2)
