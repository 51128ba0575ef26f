"""Breakers that cannot be written or probed, or are many, hold up nothing but themselves."""

from __future__ import annotations

import asyncio

import pytest

from outlast import DependencyDown, Outlast
from outlast.model.breaker import Circuit, OpenBreaker
from outlast.model.errors import StoreBusy, StoreError
from outlast.model.ids import new_job_id
from outlast.ops.breakers import open_breaker
from outlast.worker.breaker import Breakers
from tests.support import Database, aeventually
from tests.worker.test_breakers import QUICK, Sink, all_succeeded, opened
from tests.worker.working import Spy, sql, work

REFUSED, BUSY = StoreError("permission denied"), StoreBusy(reason="a row is locked")


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("open_breaker", REFUSED),
        ("open_breaker", BUSY),
        ("close_breaker", REFUSED),
        ("take_probe", BUSY),
    ],
)
async def test_a_breaker_that_cannot_be_written_holds_up_no_outcome(
    ol: Outlast, error: Exception, statement: str
) -> None:
    """R217, R223: other jobs are claimed and handed in; once it can be written, all end."""
    spy, sink = Spy(ol), Sink()

    @ol.task(breaker=QUICK)
    async def push(n: int) -> None:
        sink.take(n, error=DependencyDown("away"))

    @ol.task(queue="other")
    async def fine(n: int) -> int:
        return n

    spy.refuse(statement, error, times=1_000_000)
    await ol.aenqueue(*(push.job(n) for n in range(5)))
    async with work(ol, concurrency=5):
        await aeventually(lambda: sink.calls > 0)
        if statement != "open_breaker":
            await opened(ol)
        sink.up = statement == "close_breaker"
        refused = len(spy._refused[statement][0])
        await aeventually(lambda: len(spy._refused[statement][0]) < refused)
        job = await fine.aenqueue(7)
        assert await ol.aresult(job.id, timeout=5) == 7
        spy._refused[statement][0].clear()
        sink.up = True
        await all_succeeded(ol, 6)


async def test_a_worker_makes_no_more_probes_than_it_has_room_for(
    ol: Outlast, database: Database
) -> None:
    """R223: breakers of many queues are due at once; each gets its turn."""
    gate, spy = asyncio.Event(), Spy(ol)

    @ol.task(breaker=QUICK)
    async def push() -> None:
        await gate.wait()

    queues = [f"q{n}" for n in range(40)]
    await ol.aenqueue(*(push.using(queue=queue).job() for queue in queues))
    for queue in queues:
        down = OpenBreaker(Circuit(queue, push.name), new_job_id(), "ConnectionError")
        await ol.store.arun(open_breaker, down, "refused", "w", 0.0)
    async with work(ol, concurrency=2):
        await aeventually(lambda: ol.counts()["running"] == 2)
        assert spy.counts["take_probe"] <= 4  # SQLite's are counted twice
        gate.set()
        await all_succeeded(ol, 40)
    assert ol.breakers() == []
    assert sql(database, "SELECT max(attempt), max(fence) FROM {job}") == [(1, 1)]


async def test_reasons_of_many_closes_are_read_a_few_at_a_time(ol: Outlast) -> None:
    """R216, R223: another worker closed hundreds; outcomes do not wait for what it says of each."""
    await ol.acounts()
    spy = Spy(ol)
    breakers = Breakers(lambda: "w")
    breakers.update([OpenBreaker(Circuit(f"q{n}", "push"), "o", "E", 1.0) for n in range(50)], 1.0)
    breakers.update([], 2.0)
    assert breakers.pending
    await breakers.write(ol.store)
    assert 0 < spy.counts["breaker_closings"] <= 20 and breakers.pending
    for _ in range(4):
        await breakers.write(ol.store)
    assert not breakers.pending
