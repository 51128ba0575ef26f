"""Breakers that cannot be written or probed hold up nothing but themselves."""

from __future__ import annotations

import pytest

from outlast import DependencyDown, Outlast
from outlast.model.errors import StoreBusy, StoreError
from tests.support import aeventually
from tests.worker.test_breakers import QUICK, Sink, all_succeeded, opened
from tests.worker.working import Spy, work

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
