"""Waiting for results: cheap for many, exact for one, and never the only way to get them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from outlast import JobNotFound, Outlast, ResultTimeout, StoreUnavailable
from tests.support import Database, Processes, Proxy, aeventually

from .working import SLACK, Spy, started, work

NOBODY = "01890000-0000-7000-8000-000000000000"


@pytest.fixture
def far(database: Database, proxy: Proxy) -> Iterator[Outlast]:
    with Outlast(proxy.url(database.url), schema=database.schema) as opened:
        yield opened


@pytest.mark.quiet
@pytest.mark.kinds("postgres")
async def test_a_thousand_waiters_cost_a_few_questions(ol: Outlast) -> None:
    """R162: one question for all of them, about one a second; all are answered."""
    gate = asyncio.Event()

    @ol.task
    async def slow(n: int) -> int:
        await gate.wait()
        return n

    jobs = await ol.aenqueue(*(slow.job(n) for n in range(20)))
    spy = Spy(ol)
    async with work(ol):
        waiters = [
            asyncio.create_task(ol.aresult(jobs[n % 20].id, timeout=30)) for n in range(1000)
        ]
        await asyncio.sleep(2.0)
        assert spy.counts["ended"] <= 60, "quick at first, then calm, and never one each"
        since, before = time.monotonic(), spy.counts["ended"]
        await asyncio.sleep(3.0)
        calm = spy.counts["ended"] - before
        assert calm <= 1 + (time.monotonic() - since), "one question a second for all of them"
        gate.set()
        results = await asyncio.gather(*waiters)
    assert results == [n % 20 for n in range(1000)]
    assert spy.counts["ended"] <= before + calm + 10


@pytest.mark.kinds("sqlite")
async def test_a_timeout_is_kept_by_all_who_wait(ol: Outlast) -> None:
    """R162: exact to a second, together, with one last question and the state as it is then."""

    @ol.task
    async def never() -> None: ...

    job = await never.using(delay=3600).aenqueue()
    spy = Spy(ol)
    before = time.monotonic()
    waiting = (ol.aresult(job.id, timeout=1.0) for _ in range(500))
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert 1.0 <= time.monotonic() - before < 2.0 + SLACK
    assert {type(each) for each in results} == {ResultTimeout}
    assert "it is scheduled" in str(results[0])
    assert spy.counts["ended"] <= 60
    spy.forget()
    before = time.monotonic()
    with pytest.raises(ResultTimeout):
        await ol.aresult(job.id, timeout=2.05)
    assert spy.times("ended")[-1] - before >= 2.04, "the budget is used to its end"


def test_sync_callers_wait_in_their_threads(ol: Outlast) -> None:
    """R162: also for no time at all, for a job that is not there, and when it is closed."""

    @ol.task
    def never() -> None: ...

    job = never.using(delay=3600).enqueue()
    with pytest.raises(ResultTimeout):
        ol.result(job.id, timeout=0)
    with pytest.raises(JobNotFound):
        ol.result(NOBODY, timeout=5)
    failed: list[BaseException] = []

    def wait() -> None:
        try:
            ol.result(job.id)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.1)
    ol.close()
    thread.join(10)
    assert [type(error) for error in failed] == [StoreUnavailable]


@pytest.mark.kinds("postgres")
async def test_waiters_outlast_a_database_that_is_away(
    ol: Outlast, far: Outlast, proxy: Proxy
) -> None:
    """R162: they are answered when it is back; a timeout is kept even while it is not."""
    gate = asyncio.Event()

    @ol.task
    async def slow() -> str:
        await gate.wait()
        return "done"

    async with work(ol):
        job = await slow.aenqueue()
        await started(ol, job)
        patient = asyncio.create_task(far.aresult(job.id, timeout=60))
        await asyncio.sleep(0.2)
        proxy.freeze()
        before = time.monotonic()
        with pytest.raises(ResultTimeout):
            await far.aresult(job.id, timeout=0.5)
        assert time.monotonic() - before < 1.5 + SLACK
        gate.set()
        await aeventually(lambda: ol.job(job.id).final)
        proxy.thaw()
        assert await patient == "done"


def test_a_result_outlives_the_caller_who_waited_for_it(
    ol: Outlast, database: Database, processes: Processes
) -> None:
    """R163: the caller is killed; another one gets the result by the job's id."""
    source = f"""
        from outlast import Outlast
        ol = Outlast({database.url!r}, schema={database.schema!r})
        @ol.task
        def slow(): pass
        job = slow.enqueue()
        print(job.id, flush=True)
        ol.result(job.id)
        """
    caller = processes.python(source)

    @ol.task
    def slow() -> str:
        return "kept"

    async def attach() -> None:
        id = (await aeventually(caller.output, timeout=20)).strip()
        caller.kill()
        async with work(ol):
            assert await ol.aresult(id, timeout=10) == "kept"
        assert await ol.aresult(id) == "kept", "and again"
        await ol.aclose()

    asyncio.run(attach())
