"""A lease is held as long as its owner lives, and let go before anyone else may take over."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from outlast import ClaimLost, Context, Outlast
from outlast.model.claim import Claim
from outlast.ops.claim import ClaimRequest
from tests.support import Database, Proxy, aeventually

from .working import BOUND, SLACK, Spy, ended, sql, started, work

CLAIM = b"SET state = 'running'"
SHORT = {"lease": 1.2, "renew_every": 0.2, "reclaim_every": 0.1}


@pytest.fixture
def far(database: Database, proxy: Proxy) -> Iterator[Outlast]:
    """The same database, over a line that can be cut."""
    with Outlast(proxy.url(database.url), schema=database.schema) as opened:
        yield opened


async def long_handlers(ol: Outlast, leases: int, **timings: float) -> None:
    """Ten claims at once: one handler takes so many leases, another blocks the event loop nearly
    as long, and the rest have to wait for it. Another worker has nothing to do but take over."""
    runs: Counter[str] = Counter()

    @ol.task
    async def patient(ctx: Context) -> str:
        runs["patient"] += 1
        await asyncio.sleep(leases * timings["lease"])
        ctx.progress(1)
        return "patient"

    @ol.task
    async def blocking() -> str:
        runs["blocking"] += 1
        time.sleep((leases - 1) * timings["lease"])  # noqa: ASYNC251
        return "blocking"

    @ol.task
    async def waiting(n: int) -> str:
        runs[f"waiting {n}"] += 1
        return "waiting"

    calls = [patient.job(), blocking.job(), *(waiting.job(n) for n in range(8))]
    jobs = await ol.aenqueue(*calls)
    both = work(ol, concurrency=10, **timings), work(ol, queues=["other"], **timings)
    async with both[0] as one, both[1] as two:
        results = [await ol.aresult(job.id, timeout=60) for job in jobs]
        counts = one.counts + two.counts
    assert results == ["patient", "blocking", *["waiting"] * 8]
    assert set(runs.values()) == {1} and len(runs) == 10
    assert (counts["lost"], counts["reclaimed"], counts["refused"]) == (0, 0, 0)
    assert {(await ol.ajob(job.id)).fence for job in jobs} == {1}


async def test_claims_in_hand_are_kept_however_long_a_handler_takes_or_blocks_the_loop(
    ol: Outlast,
) -> None:
    """R029, R034: renewals come from a thread of their own, for everything in hand; a small sample
    of the campaign."""
    await long_handlers(ol, leases=3, **SHORT)


@pytest.mark.campaign
async def test_claims_in_hand_are_kept_for_ten_leases(ol: Outlast) -> None:
    """R029, R034"""
    await long_handlers(ol, leases=10, lease=2.0, renew_every=0.5)


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
        later = "run_at + 3600" if database.is_sqlite else "run_at + interval '1 hour'"
        sql(
            database,
            "UPDATE {job} SET state = 'running', attempt = 1, fence = 1, worker = ?,"
            f" started_at = run_at, lease_until = {later} WHERE id = ?",
            worker.id, job.id,
        )  # fmt: skip
        await ol.aresume("default")
        assert await ol.aresult(job.id, timeout=10) == 2
        assert worker.counts["released"] == 1
    done = await ol.ajob(job.id)
    assert (done.attempt, done.crashes, done.failures) == (1, 0, 0)


@pytest.mark.parametrize("why", ["given up", "too late"])
async def test_a_claim_that_was_given_up_or_comes_too_late_is_not_started(
    ol: Outlast, why: str
) -> None:
    """R021, R034: the heartbeat thread is about to release it, or its lease may be over. It is put
    back unspent, and runs under its next claim."""
    first: list[Claim] = []

    @ol.task
    async def fine(ctx: Context) -> int:
        return ctx.fence

    async def held_up(request: ClaimRequest | None = None) -> tuple[list[Claim], float]:
        claims, asked_at = await claim(request)
        if not claims or first:
            return claims, asked_at
        first.extend(claims)
        if why == "too late":
            return claims, asked_at - worker.settings.lease
        assert all(map(worker.in_flight.disown, claims))
        return claims, asked_at

    async with work(ol) as worker:
        claim, worker.sink.flush_and_claim = worker.sink.flush_and_claim, held_up
        job = await fine.aenqueue()
        assert await ol.aresult(job.id, timeout=30) == 2
        assert worker.counts["released"] == len(first) == 1
        assert worker.counts["late"] == (why == "too late")
    done = await ol.ajob(job.id)
    assert (done.attempt, done.crashes, done.failures) == (1, 0, 0)


@pytest.mark.kinds("postgres")
async def test_jobs_of_a_lost_claim_response_run_at_once(
    ol: Outlast, far: Outlast, proxy: Proxy
) -> None:
    """R021, R170: long before the worker would renew its leases, and unspent."""

    @far.task
    async def fine(ctx: Context) -> int:
        return ctx.fence

    renewals = Spy(far)
    async with work(far, lease=300.0, renew_every=100.0) as worker:
        await aeventually(lambda: renewals.counts["renew"] > 0 or renewals.counts["owned"] > 0)
        trap = proxy.swallow_reply_after(CLAIM)
        jobs = await ol.aenqueue(*(fine.job() for _ in range(3)))
        await asyncio.to_thread(trap.wait)
        assert [await ol.aresult(job.id, timeout=BOUND) for job in jobs] == [2, 2, 2]
        assert worker.counts["released"] == 3
    for job in jobs:
        done = await ol.ajob(job.id)
        assert (done.attempt, done.crashes, done.failures) == (1, 0, 0)


@pytest.mark.kinds("postgres")
async def test_jobs_of_a_claim_that_failed_run_once_the_database_is_back(
    ol: Outlast, far: Outlast, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R021, R170: it was committed, and not repeated: the claim after it has a response."""

    @far.task
    async def fine(ctx: Context) -> int:
        return ctx.fence

    renewals = Spy(far)
    async with work(far, lease=300.0, renew_every=100.0) as worker:
        await aeventually(lambda: renewals.counts["renew"] > 0 or renewals.counts["owned"] > 0)
        monkeypatch.setattr(worker.source._store, "_pause", lambda *_: None)  # type: ignore[attr-defined]
        trap = proxy.swallow_reply_after(CLAIM)
        [job] = await ol.aenqueue(fine.job())
        await asyncio.to_thread(trap.wait)
        assert await ol.aresult(job.id, timeout=BOUND) == 2
        assert worker.counts["turn_failed"] > 0
        assert worker.counts["released"] == 1


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
    assert (done.result, done.crashes) == ("rescued, fence 2", 0), "its session still had its lock"


@pytest.mark.kinds("postgres")
@pytest.mark.parametrize(("lease", "share", "kept"), [(4.0, 0.5, True), (2.0, 2.0, False)])
async def test_an_outage_of_the_database_never_leads_to_two_results(
    ol: Outlast, far: Outlast, proxy: Proxy, lease: float, share: float, kept: bool
) -> None:
    """R033: a job outlasts half a lease without the database; after two, exactly one result
    counts, and it is that of the last claim."""
    runs: list[int] = []

    other = Outlast(far.store.address.url, schema=far.store.address.schema)
    for app in (ol, far, other):

        @app.task(name="patient")
        async def patient(ctx: Context) -> int:
            runs.append(ctx.fence)
            if ctx.fence == 1:
                await asyncio.sleep(share * lease + 0.5)
            return ctx.fence

    async with work(far, lease=lease) as cut_off:
        job = (await ol.aenqueue(patient.job()))[0]
        await started(ol, job)
        async with work(other):  # for it the database is away as well
            proxy.refuse()
            await asyncio.sleep(share * lease)
            proxy.accept()
            done = await ended(ol, job, timeout=30)
        assert cut_off.counts["lost"] == (0 if kept else 1)
    await other.aclose()
    assert done.result == done.fence == max(runs)
    assert len(runs) == (1 if kept else 2)


@pytest.mark.kinds("postgres")
async def test_a_job_whose_row_somebody_holds_costs_no_other_its_lease(
    ol: Outlast, database: Database
) -> None:
    """R029: an open transaction holds one of two running jobs for longer than a lease: the other
    one is renewed all the time, and asked about again soon."""
    gate = asyncio.Event()

    @ol.task
    async def runs_on() -> str:
        await gate.wait()
        return "done"

    held, free = await ol.aenqueue(runs_on.job(), runs_on.job())
    query = "SELECT extract(epoch FROM lease_until - now()) FROM {job} WHERE id = ?"

    with database.connect() as connection:
        async with work(ol, lease=2.0):
            await started(ol, held)
            await started(ol, free)
            connection.execute("BEGIN")
            connection.execute("SELECT 1 FROM job WHERE id = %s FOR UPDATE", (held.id,))

            async def over() -> bool:
                ((left,),) = sql(database, query, free.id)
                assert left > 0, "its lease ran out"
                ((other,),) = sql(database, query, held.id)
                return other < -1.0

            await aeventually(over, 20.0)
            connection.execute("COMMIT")
            gate.set()
            done = await ended(ol, free, 20.0)
            assert (done.result, done.attempt) == ("done", 1)
            assert (await ended(ol, held, 20.0)).result == "done"
