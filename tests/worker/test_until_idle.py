"""A worker that stops once nothing is left to do."""

from __future__ import annotations

import asyncio

from outlast import Context, Outlast, Retry, Worker
from outlast.ops.lanes import TurnClaims, TurnLimits
from outlast.testing import advance
from outlast.worker.idle_signs import IdleSigns
from outlast.worker.idle_stop import stop_when_idle
from outlast.worker.job_source import DatabaseSource
from tests.support import aeventually
from tests.worker.working import work


async def test_a_worker_runs_what_is_due_and_what_that_enqueues_and_stops(ol: Outlast) -> None:
    @ol.task
    def parent(n: int, ctx: Context) -> None:
        ctx.enqueue(child.job(n))

    @ol.task(retry=Retry(max_attempts=2, base=3600, cap=3600))
    async def child(n: int) -> None:
        if n == 3:
            raise ValueError(n)

    for n in range(10):
        await parent.aenqueue(n)
    worker = work(ol)
    await worker.arun(until_idle=True)
    counts = await ol.acounts()
    assert (counts["succeeded"], counts["scheduled"], counts["ready"]) == (19, 1, 0)
    assert (worker.counts["succeeded"], worker.counts["dead"]) == (19, 0)
    assert await ol.aworkers() == []
    await ol.aclose()


async def test_jobs_that_it_cannot_run_do_not_keep_it(ol: Outlast) -> None:
    other = Outlast(ol.store.address.url, schema=ol.store.address.schema)

    @other.task
    def unknown() -> None: ...

    @ol.task
    def known() -> None: ...

    await unknown.aenqueue()
    await other.aclose()
    await known.using(queue="paused").aenqueue()
    await ol.apause("paused")
    await known.using(queue="elsewhere").aenqueue()
    await asyncio.wait_for(work(ol, queues=["default", "paused"]).arun(until_idle=True), 60)
    assert (await ol.acounts())["ready"] == 3
    await ol.aclose()


async def test_a_rate_limit_is_waited_for(ol: Outlast) -> None:
    ol.queue("slow", rate="5/s", burst=1)

    @ol.task(queue="slow")
    def send() -> None: ...

    for _ in range(3):
        await send.aenqueue()
    await work(ol).arun(until_idle=True)
    assert (await ol.acounts())["succeeded"] == 3
    await ol.aclose()


def test_a_rate_limit_of_an_empty_queue_is_not_waited_for() -> None:
    """R001: its last job was claimed and ended between two polls, and its freed lane asked in vain;
    a worker that waited for tokens then would never stop."""
    limits = TurnLimits(alone=True, ordered=False, refill=0.2, weights=None)
    signs = IdleSigns()
    signs.claimed_nothing(["slow"], TurnClaims(limits=limits))
    signs.polled({"slow"}, due=False)
    assert (signs.exhausted, signs.refill) == (True, 0.2)
    signs.polled(set(), due=False)
    assert (signs.exhausted, signs.refill) == (True, None)


async def test_a_job_that_runs_elsewhere_is_waited_for(ol: Outlast) -> None:
    """R001: if its worker dies, this one is still there to run it."""
    begun, release = asyncio.Event(), asyncio.Event()

    @ol.task
    async def long() -> None:
        begun.set()
        await release.wait()

    async with work(ol):
        job = await long.aenqueue()
        await begun.wait()
        second = work(ol)
        stop_when_idle(second)
        looks = count_looks(second)
        running = asyncio.create_task(second.arun())
        await aeventually(lambda: len(looks) >= 2 or running.done())
        assert not running.done()
        release.set()
        await running
    assert (await ol.ajob(job.id)).state == "succeeded"
    await ol.aclose()


async def test_a_retry_that_is_due_at_once_is_run_before_it_stops(ol: Outlast) -> None:
    begun, release = asyncio.Event(), asyncio.Event()

    @ol.task(retry=Retry(max_attempts=2, base=0.001, cap=0.001))
    async def flaky(ctx: Context) -> None:
        begun.set()
        if ctx.attempt == 1:
            await release.wait()
            raise ConnectionError

    job = await flaky.aenqueue()
    worker = work(ol)
    running = asyncio.create_task(worker.arun(until_idle=True))
    await begun.wait()
    assert isinstance(worker.source, DatabaseSource)
    signs = worker.source.poller.idle_signs
    await aeventually(lambda: signs.exhausted)  # a poll found nothing while the job ran
    release.set()
    await running
    assert (await ol.ajob(job.id)).state == "succeeded"
    await ol.aclose()


def count_looks(worker: Worker) -> list[None]:
    """One entry for each time that a worker without work asks whether it may stop."""
    assert isinstance(worker.source, DatabaseSource)
    looks: list[None] = []
    ask = worker.source.on_idle
    assert ask is not None

    async def counted() -> bool:
        looks.append(None)
        return await ask()

    worker.source.on_idle = counted
    return looks


async def test_a_due_schedule_fires_before_it_stops(ol: Outlast) -> None:
    @ol.task
    def report() -> None: ...

    ol.schedule("daily", report.job(), cron="0 0 * * *")
    await work(ol).arun(until_idle=True)  # announces it
    advance(ol, "1d")
    await work(ol).arun(until_idle=True)
    assert len(await ol.ajobs(task="report", state="succeeded")) == 1
    await ol.aclose()
