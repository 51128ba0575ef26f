"""Low priorities have their share of a flood."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack

import pytest

from outlast import Context, Outlast
from outlast.model.settings import WorkerSettings
from outlast.worker import priority_share
from outlast.worker.poller import MAX_SINGLE_QUEUES, Poller
from outlast.worker.priority_share import PriorityShare
from tests.support import aeventually

from .working import Spy, work

LOW_JOBS = 5
FLOOD = 50  # jobs of high priority that are always there


class Flood:
    """More jobs of high priority, whenever some were done; and the order in which jobs ran."""

    def __init__(self, ol: Outlast, queue: str = "default") -> None:
        self.order: list[int] = []

        @ol.task(name="flood", queue=queue)
        async def job(ctx: Context, more: bool = True) -> None:
            self.order.append(ctx.job.priority)
            await asyncio.sleep(0)
            if more:
                ctx.enqueue(job.using(priority=10).job())

        self.job = job

    async def start(self, ol: Outlast) -> None:
        await ol.aenqueue(
            *(self.job.using(priority=-10).job(more=False) for _ in range(LOW_JOBS)),
        )
        await asyncio.sleep(0.002)  # the clock of SQLite counts milliseconds
        await ol.aenqueue(*(self.job.using(priority=10).job() for _ in range(FLOOD)))

    async def low_done(self) -> int:
        """How many jobs had run when the last of low priority had."""
        await aeventually(lambda: self.order.count(-10) == LOW_JOBS, 60.0)
        return [n for n, priority in enumerate(self.order, 1) if priority == -10][-1]


async def test_a_flood_of_high_priority_leaves_low_ones_their_share(ol: Outlast) -> None:
    """R243: one at a time, each tenth job is the longest due, whatever else arrives."""
    flood = Flood(ol)
    await flood.start(ol)
    async with work(ol, concurrency=1):
        assert await flood.low_done() <= 10 * LOW_JOBS


@pytest.mark.parametrize("concurrency", [1, 4])
async def test_a_flooded_lane_leaves_low_priorities_their_share(
    ol: Outlast, concurrency: int
) -> None:
    """R243: in a limited queue, within a lane."""
    ol.queue("mail", lane_running=10)
    flood = Flood(ol, "mail")
    await flood.start(ol)
    async with work(ol, concurrency=concurrency):
        assert await flood.low_done() <= 10 * (LOW_JOBS + concurrency)


async def test_several_workers_of_many_flooded_queues_leave_low_ones_their_share(
    ol: Outlast,
) -> None:
    """R243: also where many queues are asked in one statement."""
    flood = Flood(ol)

    @ol.task(name="other")
    async def other(ctx: Context, queue: str) -> None:
        ctx.enqueue(other.using(queue=queue).job(queue))

    await ol.aenqueue(*(other.using(queue=f"o{n}").job(f"o{n}") for n in range(8) for _ in "xx"))
    await flood.start(ol)
    async with AsyncExitStack() as stack:
        for _ in range(2):
            await stack.enter_async_context(work(ol, concurrency=2))
        assert await flood.low_done() <= 10 * (LOW_JOBS + 4)


async def test_a_queue_that_is_drained_pays_no_share(ol: Outlast) -> None:
    """A claim that takes all there is starves nobody."""
    spy = Spy(ol)

    @ol.task
    async def one() -> None: ...

    async with work(ol, concurrency=10):
        for _ in range(30):
            job = await one.aenqueue()
            await ol.aresult(job, timeout=20)
    assert spy.counts["claim_longest_due"] == 0
    assert spy.counts["claim"] + spy.counts["claim_on"] > 0


def test_claims_for_the_longest_due_take_a_tenth_of_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R036: an old snapshot that keeps what was taken makes them slow; one slow claim does not."""
    share = PriorityShare(claims=9)
    assert share.due
    share.claimed(True, 60.0)
    share.claims = 19
    assert share.due
    share.claimed(True, 60.0)
    share.claims = 28
    assert not share.due
    share.claimed(False, 0.001)
    assert share.claims == 28, "it is due as soon as its time has come"
    monkeypatch.setattr(
        priority_share.time, "monotonic", lambda now=time.monotonic: now() + 9 * 60.0
    )
    assert share.due


@pytest.mark.parametrize("due", [False, True])
def test_a_queue_whose_share_is_due_is_asked_alone(due: bool) -> None:
    """R243: a claim from many queues gives to the highest priorities only."""
    poller = Poller(None, WorkerSettings())
    queues = [f"q{n}" for n in range(2 * MAX_SINGLE_QUEUES)]
    for queue in queues:
        poller.notify(queue)
    poller._shares[queues[0]] = PriorityShare(claims=9 if due else 0)
    assert poller.next_queues() == (("q0",) if due else tuple(queues))
