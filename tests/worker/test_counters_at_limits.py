"""Rows whose counters are at the limits of their columns: they end alone, and stop nobody."""

from __future__ import annotations

import pytest

from outlast import Outlast, Retry
from outlast.model.claim import ATTEMPT_LIMIT, FENCE_LIMIT
from outlast.ops.claim import promote
from tests.support import Database

from .working import ended, sql, work

COUNT_LIMIT = ATTEMPT_LIMIT  # of failures and crashes: the same kind of column


@pytest.mark.parametrize(("counter", "limit"), [("attempt", ATTEMPT_LIMIT), ("fence", FENCE_LIMIT)])
async def test_a_job_that_cannot_be_counted_on_is_dead_and_the_others_run(
    ol: Outlast, database: Database, counter: str, limit: int
) -> None:
    """R229: at the head of its queue; with its reason, and again if somebody redrives it."""
    ran: list[int] = []

    @ol.task
    async def note(n: int) -> int:
        ran.append(n)
        return n

    jobs = await ol.aenqueue(*(note.job(n) for n in range(5)))
    sql(database, f"UPDATE {{job}} SET {counter} = ? WHERE id = ?", limit, jobs[0].id)
    async with work(ol):
        for n, job in enumerate(jobs[1:], 1):
            assert await ol.aresult(job.id, timeout=10) == n
        first = await ended(ol, jobs[0])
        assert first.state == "dead" and first.error
        assert first.error["type"] == "CounterAtLimit" and str(limit) in first.error["message"]
        assert "CounterAtLimit" in await ol.aexplain(first.id)
        await ol.aretry(first.id)
        again = await ended(ol, first)
    if counter == "fence":  # a redrive counts attempts anew, but fences never go back
        assert (again.state, ran) == ("dead", [1, 2, 3, 4])
    else:
        assert (again.state, again.result) == ("succeeded", 0)
    assert sql(database, "SELECT count(*) FROM {job} WHERE state = 'running'") == [(0,)]


async def test_a_claim_at_the_limit_whose_reply_was_lost_is_dead(
    ol: Outlast, database: Database
) -> None:
    """R229: the worker owns the row and does not know it. Released, the row would come to the same
    worker as the claim that it has just given up, for ever."""

    @ol.task
    async def note() -> None: ...

    async with work(ol, renew_every=0.1) as worker:
        await ol.apause("default")
        job = await note.aenqueue()
        future = "32503680000000000" if database.is_sqlite else "now() + interval '1 h'"
        now = "1" if database.is_sqlite else "now()"
        sql(
            database,
            "UPDATE {job} SET state = 'running', worker = ?, attempt = 1, fence = ?,"
            f" started_at = {now}, lease_until = {future}",
            worker.id,
            FENCE_LIMIT,
        )
        first = await ended(ol, job)
    assert first.state == "dead" and first.error
    assert first.error["type"] == "CounterAtLimit"


@pytest.mark.parametrize("counter", ["failures", "crashes"])
async def test_a_job_with_countless_failures_runs_and_ends(
    ol: Outlast, database: Database, counter: str
) -> None:
    """R229: it is promoted, claimed, failed, taken back and released as any other."""

    @ol.task(retry=Retry(max_attempts=1))
    async def note(n: int) -> int:
        if n < 0:
            raise ValueError("it fails")
        return n

    at_limit = await ol.aenqueue(note.job(0), note.job(-1), note.using(delay=3600).job(1))
    sql(database, f"UPDATE {{job}} SET {counter} = {COUNT_LIMIT}, max_crashes = {COUNT_LIMIT}")
    early = "0" if database.is_sqlite else "now()"
    sql(database, f"UPDATE {{job}} SET run_at = {early}")
    await ol.store.arun(promote)
    beside = await note.aenqueue(7)
    async with work(ol):
        assert await ol.aresult(beside.id, timeout=10) == 7
        now = [await ended(ol, job) for job in at_limit]
    assert [job.state for job in now][::2] == ["succeeded"] * 2
    assert now[1].state == "dead"
    assert getattr(now[1], counter) == COUNT_LIMIT


async def test_a_lost_owner_of_a_job_with_countless_crashes_stops_no_sweep(
    ol: Outlast, database: Database
) -> None:
    """R229: both are taken back; the one that has cost too many workers is dead."""

    @ol.task
    async def note(n: int) -> int:
        return n

    jobs = await ol.aenqueue(note.job(0), note.job(1))
    past = "1" if database.is_sqlite else "now() - interval '1 h'"
    sql(
        database,
        "UPDATE {job} SET state = 'running', worker = 'gone', attempt = 1, fence = 1,"
        f" started_at = {past}, lease_until = {past}",
    )
    sql(database, f"UPDATE {{job}} SET crashes = {COUNT_LIMIT} WHERE id = ?", jobs[0].id)
    async with work(ol):
        assert await ol.aresult(jobs[1].id, timeout=20) == 1
        assert (await ended(ol, jobs[0])).state == "dead"
