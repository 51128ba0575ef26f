"""Rows that somebody has spoiled: each goes dead alone, with its reason, and holds up no other."""

from __future__ import annotations

import pytest

from outlast import Context, Job, Outlast, Retry
from tests.support import Database, aeventually

from .working import ended, sql, work

QUICK = Retry(max_attempts=3, base=0.01, cap=0.01, jitter=0.0)

# What is put where, and what the reason should speak of. The first three on every database.
ARGUMENTS = [
    ("args", '{"n": "no number"}', "n"),
    ("args", "[1, 2]", "not a JSON object"),
    ("args", '{"n": 1, "surprise": 2}', "surprise"),
]
SQLITE_ARGUMENTS = [
    ("args", '{"n": ', "not JSON"),
    ("args", "", "not JSON"),
    ("args", "\0", "not JSON"),
    ("args", b'{"n": "\xff\xfe"}', "n"),
    ("args", 7, "not a JSON object"),
    ("timeout", "soon", "timeout"),
]
# These matter only to a job that fails.
POLICIES = [("retry", "[]", "Retry"), ("retry", '{"base": "x"}', "base"), ("retry", "7", "Retry")]
SQLITE_POLICIES = [
    ("retry", "nonsense", "JSONDecodeError"),
    ("failures", "few", "cannot be read"),
    ("max_attempts", "many", "cannot be read"),
]


def spoil(database: Database, job: Job, column: str, value: object) -> None:
    if database.is_sqlite:
        as_text = isinstance(value, bytes) and column == "args"
        mark = "CAST(? AS TEXT)" if as_text else "?"
    else:
        mark = "CAST(? AS json)"
    sql(database, f"UPDATE {{job}} SET {column} = {mark} WHERE id = ?", value, job.id)


async def test_a_row_that_cannot_be_read_goes_dead_alone_after_one_attempt(
    ol: Outlast, database: Database
) -> None:
    """R013: unreadable arguments, of every kind the database lets through."""
    ran = []

    @ol.task(retry=QUICK)
    async def good(n: int) -> int:
        ran.append(n)
        return n

    @ol.task(retry=QUICK)
    def good_in_thread(n: int) -> int:
        ran.append(n)
        return n

    cases = ARGUMENTS + (SQLITE_ARGUMENTS if database.is_sqlite else [])
    neighbours = await ol.aenqueue(*(good.job(n) for n in range(20)))
    bad = []
    for column, value, about in cases:
        for task in (good, good_in_thread):
            job = await task.aenqueue(-1)
            spoil(database, job, column, value)
            bad.append((job, about))
    async with work(ol):
        for job in neighbours:
            await ol.aresult(job.id, timeout=10)
        for job, about in bad:
            dead = await ended(ol, job)
            assert (dead.state, dead.attempt) == ("dead", 1), dead
            assert dead.error is not None and about in dead.error["message"], dead.error
    assert sorted(ran) == list(range(20))


async def test_a_row_whose_policy_cannot_be_read_goes_dead_when_it_fails(
    ol: Outlast, database: Database
) -> None:
    """R013: at its first failure, with the reason; and a success needs no policy."""

    @ol.task
    async def fails_if(bad: bool) -> bool:
        if bad:
            raise OSError("as told")
        return bad

    async with work(ol):
        for column, value, about in POLICIES + (SQLITE_POLICIES if database.is_sqlite else []):
            await ol.apause("default")
            jobs = await ol.aenqueue(fails_if.job(True), fails_if.job(False))
            for job in jobs:
                spoil(database, job, column, value)
            await ol.aresume("default")
            dead, well = await ended(ol, jobs[0]), await ended(ol, jobs[1])
            assert (dead.state, dead.attempt, well.state) == ("dead", 1, "succeeded")
            assert dead.error is not None and dead.error["type"] == "Undecodable"
            assert about in dead.error["message"], dead.error


@pytest.mark.kinds("postgres")
async def test_a_timeout_that_is_no_number_is_refused_before_the_job_starts(
    ol: Outlast, database: Database
) -> None:
    """R013: PostgreSQL lets a NaN through; a timer would never ring for it."""

    @ol.task(timeout=5)
    async def never(ctx: Context) -> None:
        raise AssertionError("it was started")

    job = await never.aenqueue()
    sql(database, "UPDATE {job} SET timeout = 'NaN' WHERE id = ?", job.id)
    async with work(ol):
        dead = await ended(ol, job)
    assert dead.error is not None and "timeout" in dead.error["message"]


@pytest.mark.kinds("sqlite")
async def test_a_broken_moment_does_not_stop_its_queue(ol: Outlast, database: Database) -> None:
    """R013: claims are put in order by moments, also where one of them is no moment."""

    @ol.task
    async def good(n: int) -> int:
        return n

    jobs = await ol.aenqueue(*(good.job(n) for n in range(5)))
    sql(database, "UPDATE {job} SET run_at = 'whenever', created_at = x'00ff' WHERE id = ?",
        jobs[0].id)  # fmt: skip
    async with work(ol):
        for n, job in enumerate(jobs):
            assert await ol.aresult(job.id, timeout=10) == n


@pytest.mark.kinds("sqlite")
async def test_a_lost_job_that_cannot_be_read_holds_up_no_other(
    ol: Outlast, database: Database
) -> None:
    """R013, R082: it is taken back dead; the others run again."""

    @ol.task
    async def good(n: int) -> int:
        return n

    jobs = await ol.aenqueue(*(good.job(n) for n in range(5)))
    lost = "UPDATE {job} SET state = 'running', attempt = 1, fence = 1, worker = 'gone'"
    sql(database, f"{lost}, lease_until = 1.0")
    sql(database, "UPDATE {job} SET crashes = 'lots' WHERE id = ?", jobs[2].id)
    async with work(ol) as worker:
        dead = await ended(ol, jobs[2])
        await aeventually(lambda: worker.counts["reclaimed"] == 5)
        for n in (0, 1, 3, 4):
            assert await ol.aresult(jobs[n].id, timeout=10) == n
    assert dead.state == "dead"
    assert dead.error is not None and "cannot be read" in dead.error["message"]
