"""While short handlers run, a worker takes the next jobs already, before they have a slot."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from outlast import Context, Outlast
from outlast.model.job import Job
from outlast.ops.reclaim import reclaim
from outlast.worker import capacity, finisher
from outlast.worker import job_source as worker_module
from outlast.worker.worker import Worker
from tests.store.jobs import end_leases
from tests.support import Database, aeventually
from tests.worker.working import work

pytestmark = pytest.mark.kinds("postgres")

SLOTS = 10


@dataclass
class Work:
    """Short jobs, then long ones that last until they are let go."""

    ol: Outlast
    go: asyncio.Event = field(default_factory=asyncio.Event)
    began: list[tuple[str, int]] = field(default_factory=list)
    long: list[Job] = field(default_factory=list)

    async def enqueue(self) -> None:
        async def short() -> None: ...

        async def long(ctx: Context) -> None:
            self.began.append((ctx.job.id, ctx.fence))
            await self.go.wait()

        brief, lasting = self.ol.task(name="short")(short), self.ol.task(name="long")(long)
        await self.ol.aenqueue(*(brief.job() for _ in range(20 * SLOTS)))
        self.long = await self.ol.aenqueue(*(lasting.job() for _ in range(3 * SLOTS)))

    async def running(self) -> list[Job]:
        return [job for job in await self.ol.ajobs(state="running") if job.task == "long"]

    @asynccontextmanager
    async def until_ahead(self) -> AsyncIterator[Worker]:
        """A worker whose slots are full of long ones, with more in hand."""
        await self.enqueue()
        async with work(self.ol, concurrency=SLOTS) as worker:
            await aeventually(lambda: len(self.began) >= SLOTS and worker.executor.prefetched)
            yield worker


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is, it is quick enough; and what is ahead stays so."""
    monkeypatch.setattr(worker_module, "PREFETCH_FOR_S", 60.0)
    for module in (finisher, capacity):
        monkeypatch.setattr(module, "SHORT_HANDLER_S", 5.0)


async def test_no_more_handlers_run_at_once_than_asked_for(ol: Outlast) -> None:
    """R020: whatever is in hand."""
    running, most, in_hand = 0, 0, 0

    @ol.task
    async def short(n: int) -> None:
        nonlocal running, most, in_hand
        running += 1
        most, in_hand = max(most, running), max(in_hand, len(worker.in_flight))
        if n < SLOTS:
            await aeventually(lambda: most >= SLOTS)
        elif n % 3:
            await asyncio.sleep(random.uniform(0, 0.01))
        running -= 1

    number = 100 * SLOTS
    await ol.aenqueue(*(short.job(n) for n in range(number)))
    async with work(ol, concurrency=SLOTS) as worker:
        await aeventually(lambda: worker.counts["succeeded"] == number, timeout=60)
    assert most == SLOTS
    assert SLOTS < in_hand <= 3 * capacity.MAX_AT_ONCE, "running, ahead, and on their way back"


@pytest.mark.parametrize("size", [2, 1])
async def test_no_more_batches_either(ol: Outlast, size: int) -> None:
    """R020: an item that opens a batch takes a slot; one that joins it does not."""
    running, most = 0, 0

    @ol.task
    async def short() -> None: ...

    @ol.task(batch=size)
    async def many(items: list[int]) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.1)
        running -= 1

    number = 10 * SLOTS
    await ol.aenqueue(*(short.job() for _ in range(20 * SLOTS)), *map(many.job, range(number)))
    async with work(ol, concurrency=SLOTS) as worker:
        await aeventually(lambda: worker.counts["succeeded"] == 20 * SLOTS + number, timeout=60)
    assert most <= SLOTS


async def test_what_finds_no_slot_is_put_back_for_others(ol: Outlast) -> None:
    """R182: at once, and nothing is charged."""
    jobs = Work(ol)
    async with jobs.until_ahead() as worker:
        await aeventually(lambda: not worker.executor.prefetched)
        await aeventually(lambda: len(worker.in_flight) == SLOTS)
        assert len(await jobs.running()) == SLOTS
        left = [job for job in await ol.ajobs(state="ready") if job.task == "long"]
        assert len(left) == 2 * SLOTS and {job.attempt for job in left} == {0}
        jobs.go.set()
        for job in jobs.long:
            await ol.aresult(job.id, timeout=30)
    assert sorted(id for id, _ in jobs.began) == sorted(job.id for job in jobs.long), "once each"


@pytest.mark.usefixtures("patient")
async def test_a_worker_that_stops_puts_them_back(ol: Outlast) -> None:
    """R182: before those that run have ended."""
    jobs = Work(ol)
    async with jobs.until_ahead() as worker:
        worker.stop()
        await aeventually(lambda: len(worker.in_flight) == SLOTS)
        left = [job for job in await ol.ajobs(state="ready") if job.task == "long"]
        assert {job.attempt for job in left} == {0}
        jobs.go.set()
    assert len(jobs.began) == SLOTS


@pytest.mark.usefixtures("patient")
async def test_one_that_is_cancelled_before_it_began_never_does(ol: Outlast) -> None:
    """R115"""
    jobs = Work(ol)
    async with jobs.until_ahead() as worker:
        id = worker.executor.prefetched[0].claim.id
        await ol.acancel(id)
        await aeventually(lambda: ol.job(id).state == "cancelled")
        jobs.go.set()
        await aeventually(lambda: worker.counts["succeeded"] == 23 * SLOTS - 1)
    assert id not in {id for id, _ in jobs.began}


@pytest.mark.usefixtures("patient")
async def test_those_that_are_cancelled_before_they_began_leave_no_slot(ol: Outlast) -> None:
    """R020: they had none."""
    jobs = Work(ol)
    async with jobs.until_ahead() as worker:
        gone = [held.claim.id for held in worker.executor.prefetched][: SLOTS // 2]
        for id in gone:
            await ol.acancel(id)
        for id in gone:
            await aeventually(lambda id=id: ol.job(id).state == "cancelled")  # type: ignore[misc]
        assert len(jobs.began) == SLOTS
        jobs.go.set()
        await aeventually(lambda: worker.counts["succeeded"] == 23 * SLOTS - len(gone))


@pytest.mark.usefixtures("patient")
async def test_one_that_is_lost_before_it_began_is_not_begun(
    ol: Outlast, database: Database
) -> None:
    """R030: somebody else may have it."""
    jobs = Work(ol)
    async with jobs.until_ahead() as worker:
        held = worker.executor.prefetched[0]
        await ol.apause("default")
        end_leases(database, f"id = '{held.claim.id}'")
        assert (await ol.store.arun(reclaim)).healed == 1
        worker.leases.renew_now()
        await aeventually(lambda: not worker.in_flight.holds(held))
        jobs.go.set()
        await aeventually(lambda: not worker.executor.prefetched)
        await ol.aresume("default")
        await ol.aresult(held.claim.id, timeout=30)
    assert [fence for id, fence in jobs.began if id == held.claim.id] == [2]
