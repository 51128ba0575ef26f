"""What stops an item of a batch, or a whole one: cancels, timeouts, lost claims, shutdown."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable
from typing import Any

import pytest

from outlast import BatchContext, BatchFailed, Job, Outlast, Retry, State
from tests.support import Database, aeventually

from .working import ended, sql, started, work

LONG = 30.0  # seconds of wait that no test waits for
QUICK = Retry(max_attempts=2, base=0.01, cap=0.01, jitter=0.0)


async def all_ended(ol: Outlast, jobs: Iterable[Job]) -> list[Job]:
    return [await ended(ol, job, 20.0) for job in jobs]


async def all_started(ol: Outlast, jobs: Iterable[Job]) -> None:
    for job in jobs:
        await started(ol, job)


async def test_an_item_that_is_cancelled_while_it_is_gathered_is_no_part_of_the_call(
    ol: Outlast,
) -> None:
    """R115: and the others are called without it."""
    seen: list[int] = []

    @ol.task(batch=3, wait=LONG)
    async def gather(items: list[int]) -> None:
        seen.extend(items)

    jobs = await ol.aenqueue(gather.job(0), gather.job(1))
    async with work(ol):
        await all_started(ol, jobs)
        await ol.acancel(jobs[0].id)
        assert (await ended(ol, jobs[0])).state is State.CANCELLED
        jobs += await ol.aenqueue(gather.job(2), gather.job(3))
        await all_ended(ol, jobs[1:])
    assert seen == [1, 2, 3]


@pytest.mark.parametrize("told", ["succeeded", "failed", "unnamed", "nothing"])
async def test_cancelling_one_item_of_a_running_batch_stops_no_other(
    ol: Outlast, told: str
) -> None:
    """R115: what the handler tells of it counts; what it cannot tell is cancelled, and so is what
    it does not tell in time."""
    calls: list[list[int]] = []

    @ol.task(batch=3, wait=LONG, retry=QUICK)
    async def gather(items: list[int], ctx: BatchContext) -> None:
        calls.append(items)
        if len(calls) > 1:
            return
        while not ctx.items[1].cancelled.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert not ctx.cancelled.is_set() and not ctx.items[0].cancelled.is_set()
        if told == "failed":
            raise BatchFailed({1: "told to stop"})
        if told == "unnamed":
            raise ConnectionError("somebody was told to stop")
        await asyncio.sleep(2.0 if told == "nothing" else 0.0)

    jobs = await ol.aenqueue(*(gather.job(n) for n in range(3)))
    async with work(ol, cancel_grace=0.3 if told == "nothing" else 5.0):
        await all_started(ol, jobs)
        await ol.acancel(jobs[1].id)
        last = await all_ended(ol, jobs)
    middle = "succeeded" if told == "succeeded" else "cancelled"
    assert [job.state for job in last] == ["succeeded", middle, "succeeded"]
    assert {job.failures for job in last} == {0}
    expected = [[0, 1, 2], [0], [2]] if told == "unnamed" else [[0, 1, 2]]
    assert calls == expected, "it is no part of the search"


async def test_a_call_whose_every_item_is_cancelled_is_cancelled(ol: Outlast) -> None:
    """R115"""
    stopped = threading.Event()

    @ol.task(batch=2, wait=LONG)
    async def gather(items: list[int], ctx: BatchContext) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            assert ctx.cancelled.is_set()
            stopped.set()

    @ol.task(batch=2, wait=LONG)
    def gather_in_thread(items: list[int], ctx: BatchContext) -> None:
        ctx.cancelled.wait(60)
        raise InterruptedError("told to stop")

    for task in (gather, gather_in_thread):
        jobs = await ol.aenqueue(task.job(0), task.job(1))
        async with work(ol) as worker:
            await all_started(ol, jobs)
            for job in jobs:
                await ol.acancel(job.id)
            assert {job.state for job in await all_ended(ol, jobs)} == {State.CANCELLED}
            await aeventually(lambda worker=worker: _true(worker.executor.batches.slots == 0))
    assert stopped.is_set()


async def _true(value: Any) -> bool:
    return bool(value)


@pytest.mark.parametrize("colour", ["sync", "async"])
async def test_nobody_dies_of_a_call_that_another_item_made_hang(ol: Outlast, colour: str) -> None:
    """R032, R056: a timeout names no item. Each is charged with it, and on its last try each is
    called alone: so the one that hangs is the only one that ends dead."""
    calls: list[list[int]] = []
    for_good = threading.Event()

    async def agather(items: list[int], ctx: BatchContext) -> None:
        calls.append(items)
        await asyncio.sleep(60.0 if 3 in items else 0.0)

    def gather(items: list[int], ctx: BatchContext) -> None:
        calls.append(items)
        if 3 in items:
            for_good.wait(60.0)  # deaf: it is abandoned

    function: Any = gather if colour == "sync" else agather
    task = ol.task(batch=5, wait=0.2, timeout=0.4, retry=QUICK, name="gather")(function)
    jobs = await ol.aenqueue(*(task.job(n) for n in range(5)))
    try:
        async with work(ol, cancel_grace=0.2, concurrency=8):
            last = await all_ended(ol, jobs)
    finally:
        for_good.set()
    assert calls[0] == [0, 1, 2, 3, 4]
    assert sorted(calls[1:]) == [[0], [1], [2], [3], [4]]
    assert [job.state for job in last] == ["succeeded"] * 3 + ["dead", "succeeded"]
    assert {job.failures for job in last} == {1, 2}
    attempts, _ = await ol.ahistory(jobs[3].id)
    assert [each.outcome for each in attempts] == ["timed-out", "timed-out"]


async def test_an_items_time_runs_while_it_is_gathered(ol: Outlast) -> None:
    """R032: so the wait is no longer than half of it, whatever the task says."""
    calls: list[float] = []

    @ol.task(batch=5, wait=LONG)
    async def gather(items: list[int]) -> None:
        calls.append(time.monotonic())

    async with work(ol):
        began = time.monotonic()
        job = await gather.using(timeout=1.0).aenqueue(1)
        assert (await ended(ol, job)).state is State.SUCCEEDED
    assert 0.4 < calls[0] - began < 5.0


async def test_the_time_of_an_attempt_covers_the_search_too(ol: Outlast) -> None:
    """R032: what the search has cleared stays cleared; the rest is timed out."""
    calls: list[list[int]] = []

    @ol.task(batch=4, wait=LONG, timeout=1.0, max_attempts=1)
    async def gather(items: list[int]) -> None:
        calls.append(items)
        if items == [2, 3]:
            await asyncio.sleep(60)
        if len(items) > 2:
            raise ValueError("somewhere")

    jobs = await ol.aenqueue(*(gather.job(n) for n in range(4)))
    async with work(ol, cancel_grace=0.2):
        last = await all_ended(ol, jobs)
    assert calls == [[0, 1, 2, 3], [0, 1], [2, 3]]
    assert [job.state for job in last] == ["succeeded"] * 2 + ["dead"] * 2
    assert [job.error["type"] for job in last[2:] if job.error] == ["TimedOut"] * 2


async def test_a_lost_claim_takes_its_item_out_of_the_batch(
    ol: Outlast, database: Database
) -> None:
    """R030, R031: before the call, and during it; the others' outcomes count, its own does not."""
    calls: list[list[int]] = []
    go_on = asyncio.Event()

    @ol.task(batch=3, wait=LONG)
    async def gather(items: list[int], ctx: BatchContext) -> None:
        calls.append(items)
        if len(calls) == 1:
            while not ctx.items[0].cancelled.is_set():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await go_on.wait()

    def rob(job: Job) -> None:
        text = "UPDATE {job} SET fence = fence + 1, worker = 'a thief' WHERE id = ?"
        sql(database, text, job.id)

    jobs = await ol.aenqueue(gather.job(0), gather.job(1))
    async with work(ol) as worker:
        await all_started(ol, jobs)
        rob(jobs[0])
        await aeventually(lambda: _true(worker.counts["lost"] == 1))
        jobs += await ol.aenqueue(gather.job(2), gather.job(3))
        await aeventually(lambda: _true(calls == [[1, 2, 3]]))
        rob(jobs[1])
        await aeventually(lambda: _true(worker.counts["lost"] == 2))
        go_on.set()
        assert {job.state for job in await all_ended(ol, jobs[2:])} == {State.SUCCEEDED}
        assert calls == [[1, 2, 3]]
        thieves = [(await ol.ajob(job.id)).worker for job in jobs[:2]]
        assert thieves == ["a thief"] * 2, "nothing of it was handed in"


async def test_what_is_gathered_when_a_worker_stops_is_given_back_at_once_unspent(
    ol: Outlast,
) -> None:
    """R182, R183: beside a batch that runs, and ends in its grace time."""
    seen: list[list[int]] = []

    @ol.task(batch=2, wait=LONG)
    async def gather(items: list[int]) -> None:
        seen.append(items)
        await asyncio.sleep(0.5)

    jobs = await ol.aenqueue(*(gather.job(n) for n in range(3)))
    worker = work(ol, grace=10.0)
    async with worker:
        await all_started(ol, jobs)
        worker.stop()
        await aeventually(lambda: _is_ready(ol, jobs[2]))
        assert (await ol.ajob(jobs[0].id)).state is State.RUNNING, "long before that ends"
    last = [await ol.ajob(job.id) for job in jobs]
    assert [(job.state, job.attempt) for job in last] == [
        ("succeeded", 1), ("succeeded", 1), ("ready", 0),
    ]  # fmt: skip
    assert seen == [[0, 1]]


async def _is_ready(ol: Outlast, job: Job) -> bool:
    return (await ol.ajob(job.id)).state is State.READY


@pytest.mark.parametrize("colour", ["sync", "async"])
async def test_a_batch_that_outlasts_the_grace_time_is_given_back_unspent(
    ol: Outlast, colour: str
) -> None:
    """R183: also in the middle of a search, whose next calls are not made."""
    calls: list[list[int]] = []

    async def agather(items: list[int], ctx: BatchContext) -> None:
        calls.append(items)
        if len(items) == 4:
            raise ValueError("somewhere")
        await asyncio.sleep(60)

    def gather(items: list[int], ctx: BatchContext) -> None:
        calls.append(items)
        if len(items) == 4:
            raise ValueError("somewhere")
        ctx.cancelled.wait(60)
        raise InterruptedError("told to stop")

    function: Any = gather if colour == "sync" else agather
    task = ol.task(batch=4, wait=LONG, name="gather")(function)
    jobs = await ol.aenqueue(*(task.job(n) for n in range(4)))
    async with work(ol, grace=0.1):
        await aeventually(lambda: _true(len(calls) == 2))
    last = [await ol.ajob(job.id) for job in jobs]
    assert {(job.state, job.attempt, job.failures) for job in last} == {("ready", 0, 0)}
    assert calls == [[0, 1, 2, 3], [0, 1]]


async def test_items_are_held_while_they_wait_and_while_they_run(ol: Outlast) -> None:
    """R034: for longer than a lease, both."""

    @ol.task(batch=10, wait=3.0)
    async def gather(items: list[int]) -> None:
        await asyncio.sleep(3.0)

    jobs = await ol.aenqueue(*(gather.job(n) for n in range(5)))
    async with work(ol, lease=2.0) as worker, work(ol, lease=2.0) as other:
        last = await all_ended(ol, jobs)
        assert worker.counts["lost"] + other.counts["lost"] == 0
    assert {(job.state, job.attempt, job.crashes) for job in last} == {("succeeded", 1, 0)}
