"""How a breaker closes other than by a probe, and what its jobs pay then."""

from __future__ import annotations

import logging

import pytest

from outlast import DependencyDown, Outlast, Retry
from outlast.model.breaker import Circuit, OpenBreaker
from outlast.ops.breakers import close_breaker, open_breaker
from tests.support import Database, aeventually
from tests.worker.test_breakers import QUICK, SLOW, Sink, all_succeeded, called, opened
from tests.worker.working import sql, work


async def test_it_closes_when_no_job_is_left(
    ol: Outlast, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """R223: jobs that are called once are dead one by one, the last ones as probes."""
    caplog.set_level(logging.INFO)
    sink = Sink()

    @ol.task(max_attempts=1, breaker=QUICK)
    async def push(n: int) -> None:
        sink.take(n)

    await ol.aenqueue(*(push.job(n) for n in range(7)))
    async with work(ol):
        await opened(ol)
        await opened(ol, 0)
        assert (await ol.acounts())["dead"] == 7
        sink.up = True
        await push.aenqueue(8)
        await all_succeeded(ol, 1)
    assert "task 'push': ConnectionError: refused; its jobs wait" in caplog.text
    assert "no job left to probe with; it was open for" in caplog.text
    ((data,),) = sql(database, "SELECT data FROM {event} WHERE kind = 'breaker-closed'")
    assert "no job left to probe with" in str(data)


@pytest.mark.kinds("sqlite")
async def test_a_worker_without_the_task_closes_it_too(ol: Outlast) -> None:
    """R223: those that knew the task are gone, and so are its jobs."""
    gone = OpenBreaker(Circuit("default", "gone"), "first", "ConnectionError")
    await ol.store.arun(open_breaker, gone, "refused", "w", 0.0)
    async with work(ol):
        await opened(ol, 0)


async def test_a_failed_probe_is_ready_and_runs_at_once_after_a_close_by_hand(
    ol: Outlast, database: Database
) -> None:
    """R223: also the only job of its queue; the wait is the breaker's, not its own."""
    sink = Sink()

    @ol.task(breaker=SLOW)
    async def push(n: int) -> None:
        sink.take(n, error=DependencyDown("away"))

    job = await push.aenqueue(1)
    async with work(ol):
        await opened(ol)
        sql(database, "UPDATE {breaker} SET probe_at = opened_at")
        await called(sink, 2)

        async def back() -> bool:
            return (await ol.ajob(job.id)).state == "ready"

        await aeventually(back, 10)
        sink.up = True
        assert await ol.aclose_breaker("default", "push") == 1
        await ol.aresult(job.id, timeout=10)


@pytest.mark.parametrize("by_hand", [True, False])
async def test_only_a_probe_that_succeeded_makes_jobs_pay_for_the_next_opening(
    ol: Outlast, by_hand: bool
) -> None:
    """R054: also if another process closed it; after a close by hand the fifth job pays nothing."""
    sink = Sink()

    @ol.task(retry=Retry(max_attempts=9, base=600.0, cap=600.0), breaker=SLOW)
    async def push(n: int) -> None:
        sink.take(n)

    down = OpenBreaker(Circuit("default", "push"), "first", "ConnectionError")
    await ol.store.arun(open_breaker, down, "refused", "another", 60.0)
    async with work(ol, concurrency=1) as worker:
        await aeventually(lambda: bool(worker.executor.breakers.open), 20)
        opening = None if by_hand else "first"
        await ol.store.arun(close_breaker, "default", "push", opening, "another")
        await aeventually(
            lambda: not worker.executor.breakers.open and not worker.executor.breakers.pending, 20
        )
        await ol.aenqueue(*(push.job(n) for n in range(7)))
        await opened(ol)

        async def rest() -> bool:
            return (await ol.acounts())["running"] == 0

        await aeventually(rest, 20)
        failures = sorted(job.failures for job in await ol.ajobs())
    assert failures == ([0, 0, 0, 1, 1, 1, 1] if by_hand else [0, 0, 1, 1, 1, 1, 1])
