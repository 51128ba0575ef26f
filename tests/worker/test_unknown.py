"""Jobs whose task a worker does not know: never destroyed, never spent, never in the way."""

from __future__ import annotations

import asyncio

import pytest

from outlast import Outlast
from outlast.ops import report
from tests.support import Database, aeventually

from .working import Spy, sql, work


async def test_an_unknown_task_is_left_for_others_and_reported(
    ol: Outlast, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """R010: claimable for others, no attempt spent, counted and logged, neighbours unaffected."""

    @ol.task
    async def known(n: int) -> int:
        return n

    jobs = await ol.aenqueue(*(known.job(n) for n in range(10)))
    strange = jobs[:5]
    for job in strange:
        sql(database, "UPDATE {job} SET task = 'tomorrow' WHERE id = ?", job.id)
    spy = Spy(ol)
    async with work(ol) as worker:
        for n, job in enumerate(jobs[5:]):
            assert await ol.aresult(job.id, timeout=10) == n + 5
        await aeventually(lambda: {ol.job(job.id).state for job in strange} == {"ready"})
        assert await ol.store.arun(report.unhandled) == [("default", "tomorrow", 5)]
        assert "knows the task 'tomorrow'" in await ol.aexplain(strange[0].id)
        met = worker.counts["unhandled"]
        assert 1 <= met <= 5
        spy.forget()
        await asyncio.sleep(0.6)
        assert worker.counts["unhandled"] == met, "it does not ask for them again"
        assert spy.counts["claim"] <= spy.counts["poll"] + 5 <= 35, "and not in a hurry"
    for job in strange:
        now = await ol.ajob(job.id)
        assert (now.state, now.attempt, now.failures, now.crashes) == ("ready", 0, 0, 0)
    said = [record for record in caplog.records if "tomorrow" in record.getMessage()]
    assert len(said) == 1 and "left for other workers" in said[0].getMessage()

    with Outlast(database.url, schema=database.schema) as newer:

        @newer.task(name="tomorrow")
        async def tomorrow(n: int) -> int:
            return -n

        async with work(ol), work(newer):
            for n, job in enumerate(strange):
                assert await ol.aresult(job.id, timeout=10) == -n
        assert await ol.store.arun(report.unhandled) == []
        await newer.aclose()


async def test_a_task_that_is_registered_later_is_run_from_then_on(
    ol: Outlast, database: Database
) -> None:
    """R010: what a worker has met and could not run is not forgotten for ever."""

    @ol.task
    async def known() -> None: ...

    job = await known.aenqueue()
    sql(database, "UPDATE {job} SET task = 'late' WHERE id = ?", job.id)
    async with work(ol) as worker:
        await aeventually(lambda: worker.counts["released"] or worker.counts["ready"])

        @ol.task(name="late")
        async def late() -> str:
            return "here now"

        assert await ol.aresult(job.id, timeout=10) == "here now"
