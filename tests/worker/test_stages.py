"""Stages of a flow: each has its own attempts, timeout and lease."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from outlast import Context, Outlast, Retry, chain
from outlast.ops import report
from outlast.ops.reclaim import reclaim
from outlast.store import Store, open_store
from tests.store.flowing import call, end_one, lay
from tests.store.jobs import end_leases, take
from tests.support import Database

from .working import ended, work

AT_ONCE = {"base": 0.0, "jitter": 0.0}


@pytest.mark.kinds("sqlite", "postgres")
async def test_each_stage_uses_up_its_own_budget(ol: Outlast) -> None:
    """R104: the first stage fails twice of three times and is not charged to the second, which
    fails four times of five; the third runs longer than the fourth may, which is stopped at its
    own timeout, twice, and ends dead after exactly two attempts; the first three have succeeded."""
    begun: Counter[str] = Counter()

    def stage(name: str, failures: int, **options: object):  # type: ignore[no-untyped-def]
        @ol.task(name=name, **options)
        async def run(ctx: Context) -> str:
            begun[name] += 1
            assert ctx.attempt == begun[name], "attempts are counted anew in each stage"
            if begun[name] <= failures:
                raise RuntimeError(f"{name} fails")
            await asyncio.sleep(0.4 if name in ("third", "fourth") else 0.0)
            return name

        return run

    stages = [
        stage("first", 2, retry=Retry(max_attempts=3, **AT_ONCE)),
        stage("second", 4, retry=Retry(max_attempts=5, **AT_ONCE)),
        stage("third", 0, retry=Retry(max_attempts=1), timeout=30),
        stage("fourth", 0, retry=Retry(max_attempts=2, **AT_ONCE), timeout=0.1),
        stage("fifth", 0),
    ]
    jobs = await ol.aenqueue(chain(*[one.job() for one in stages]))
    async with work(ol):
        done = [await ended(ol, job, 20.0) for job in jobs]
    assert [str(job.state) for job in done] == ["succeeded"] * 3 + ["dead"] * 2
    assert [(job.attempt, job.failures) for job in done[:4]] == [(3, 2), (5, 4), (1, 0), (2, 2)]
    assert [(job.max_attempts, job.timeout) for job in done[2:4]] == [(1, 30.0), (2, 0.1)]
    assert dict(begun) == {"first": 3, "second": 5, "third": 1, "fourth": 2}
    attempts, _ = ol.history(jobs[3].id)
    assert [(one.attempt, str(one.outcome)) for one in attempts] == [
        (1, "timed-out"),
        (2, "timed-out"),
    ]
    assert done[4].error is not None and done[4].error["type"] == "PrerequisiteFailed"


@pytest.fixture
def store(database: Database) -> Store:
    opened = open_store(database.url, database.schema)
    opened.ready()
    return opened


@pytest.mark.kinds("sqlite", "postgres")
def test_a_lost_worker_is_charged_to_the_stage_it_ran(store: Store, database: Database) -> None:
    """R104: crashes and leases are a stage's own: two lost workers use up the second stage's cap of
    two, while the first one's record and the third one's budget stay as they were."""
    run = store.run
    first, second, third = lay(
        run, chain(call(1, max_crashes=1), call(2, max_crashes=2), call(3, max_crashes=3))
    )
    end_one(run)
    for crashes in (1, 2):
        (held,) = take(run)
        assert (held.id, held.attempt, held.fence) == (second.id, crashes, crashes)
        end_leases(database)
        run(reclaim)
    jobs = [run(report.job, one.id) for one in (first, second, third)]
    assert [str(job.state) for job in jobs] == ["succeeded", "dead", "dead"]
    assert [(job.attempt, job.crashes, job.max_crashes) for job in jobs] == [
        (1, 0, 1), (2, 2, 2), (0, 0, 3),
    ]  # fmt: skip
    assert jobs[1].error is not None and jobs[1].error["type"] == "WorkerLost"
    store.close()
