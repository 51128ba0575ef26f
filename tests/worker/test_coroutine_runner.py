"""Handlers that are started together share a task while none of them waits: nobody may notice."""

from __future__ import annotations

import asyncio
import logging
from contextvars import ContextVar

import pytest

from outlast import Outlast
from tests.support import Database
from tests.worker.working import ended, sql, work

pytestmark = pytest.mark.kinds("sqlite")

NUMBER = 20
whose: ContextVar[int | None] = ContextVar("whose", default=None)


async def results(ol: Outlast, *jobs: object) -> list[object]:
    """All of them are there before the worker is: it claims them together."""
    made = await ol.aenqueue(*jobs)  # type: ignore[arg-type]
    async with work(ol, concurrency=NUMBER):
        return [await ol.aresult(job.id, timeout=30) for job in made]


async def test_a_handler_that_waits_keeps_no_other_waiting(ol: Outlast) -> None:
    """R020: the first one waits for what the last one does."""
    last = asyncio.Event()

    @ol.task
    async def step(n: int) -> int:
        if n == NUMBER - 1:
            last.set()
        await last.wait()
        return n

    assert await results(ol, *(step.job(n) for n in range(NUMBER))) == list(range(NUMBER))


async def test_what_a_handler_sets_is_not_there_for_the_next(ol: Outlast) -> None:
    @ol.task
    async def sets(n: int) -> int | None:
        before = whose.get()
        whose.set(n)
        if n % 2:
            await asyncio.sleep(0)
        return before

    assert await results(ol, *(sets.job(n) for n in range(NUMBER))) == [None] * NUMBER


async def test_a_handler_that_cancels_its_own_task_stops_no_other(ol: Outlast) -> None:
    """What it asked for would come at the next one's first wait."""

    @ol.task(max_attempts=1)
    async def cancels(n: int) -> int:
        task = asyncio.current_task()
        assert task is not None
        if n % 2:
            task.cancel()
        else:
            await asyncio.sleep(0)
        return n

    assert await results(ol, *(cancels.job(n) for n in range(NUMBER))) == list(range(NUMBER))


class Grumpy:  # noqa: PLW1641
    """As some values are that many people set."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("the truth of this is ambiguous")


async def test_what_a_handler_sets_may_compare_as_it_likes(ol: Outlast) -> None:
    mood: ContextVar[Grumpy] = ContextVar("mood")

    @ol.task(max_attempts=1)
    async def sets(n: int) -> int:
        mood.set(Grumpy())
        return n

    mood.set(Grumpy())
    assert await results(ol, *(sets.job(n) for n in range(NUMBER))) == list(range(NUMBER))


async def test_what_goes_wrong_beside_a_handler_concerns_its_job_alone(
    ol: Outlast, database: Database
) -> None:
    """R010: a row that nobody of ours has written; its neighbours run."""

    @ol.task(max_attempts=1)
    async def plain(n: int) -> int:
        return n

    made = await ol.aenqueue(*(plain.job(n) for n in range(NUMBER)))
    sql(database, "UPDATE {job} SET trace = x'00ff' WHERE id = ?", made[0].id)
    async with work(ol, concurrency=NUMBER):
        for n, job in enumerate(made[1:], 1):
            assert await ol.aresult(job.id, timeout=30) == n
        broken = await ended(ol, made[0])
    assert broken.final


async def test_what_a_log_does_concerns_nobody(ol: Outlast) -> None:
    """R191: a filter of the user's raises while the end of a job is told."""

    @ol.task(max_attempts=1)
    async def fails(n: int) -> None:
        raise OSError("as asked")

    def breaks(record: logging.LogRecord) -> bool:
        raise RuntimeError("no log today")

    made = await ol.aenqueue(*(fails.job(n) for n in range(NUMBER)))
    log = logging.getLogger("outlast.worker")
    log.addFilter(breaks)
    try:
        async with work(ol, concurrency=NUMBER):
            for job in made:
                assert (await ended(ol, job)).state == "dead"
    finally:
        log.removeFilter(breaks)


async def test_handlers_begin_with_what_is_set_when_the_worker_starts(ol: Outlast) -> None:
    @ol.task
    async def tells() -> int | None:
        return whose.get()

    worker = work(ol)
    job = await tells.aenqueue()
    token = whose.set(7)
    try:
        async with worker:
            assert await ol.aresult(job.id, timeout=30) == 7
    finally:
        whose.reset(token)


async def test_handlers_that_wait_have_tasks_of_their_own(ol: Outlast) -> None:
    """So a timeout of one of them is not another's."""
    tasks: set[asyncio.Task[object] | None] = set()

    @ol.task
    async def waits(n: int) -> str:
        tasks.add(asyncio.current_task())
        try:
            async with asyncio.timeout(0.05 if n % 2 else 30):
                await asyncio.sleep(0.2)
            return "slept"
        except TimeoutError:
            return "timed out"

    said = await results(ol, *(waits.job(n) for n in range(NUMBER)))
    assert said == ["slept", "timed out"] * (NUMBER // 2)
    assert len(tasks) == NUMBER


async def test_those_that_do_not_wait_share_one(ol: Outlast) -> None:
    """R015: a task for each of many short handlers would cost more than they do."""
    tasks: set[asyncio.Task[object] | None] = set()

    @ol.task
    async def quick(n: int) -> int:
        tasks.add(asyncio.current_task())
        return n

    assert await results(ol, *(quick.job(n) for n in range(NUMBER))) == list(range(NUMBER))
    assert len(tasks) == 1
