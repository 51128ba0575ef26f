"""Flows with a worker at work: what handlers read, add and stop."""

from __future__ import annotations

import asyncio
from typing import Any

from outlast import Context, Outlast, Retry, State, chain, group
from tests.support import aeventually
from tests.worker.working import ended, started, work


async def test_a_callback_reads_what_came_before_in_order(ol: Outlast) -> None:
    """R091, R092: a sync one and an async one, and the jobs themselves, however many pages."""

    @ol.task
    async def child(n: int) -> int:
        return n

    @ol.task
    def add(ctx: Context) -> int:
        return sum(ctx.results())

    @ol.task
    async def list_all(ctx: Context) -> list[Any]:
        return [(job.state, job.result) async for job in ctx.prerequisites()]

    *_, total, listed = await ol.aenqueue(
        group(*[child.job(n) for n in range(250)]).then(group(add.job(), list_all.job()))
    )
    async with work(ol):
        assert (await ended(ol, total, 60.0)).result == sum(range(250))
        assert (await ended(ol, listed, 60.0)).result == [["succeeded", n] for n in range(250)]


async def test_a_fan_out_may_grow_while_it_runs(ol: Outlast) -> None:
    """R107: a child fans out again, and the callback waits for those too."""

    @ol.task
    async def branch(depth: int, ctx: Context) -> int:
        if depth:
            ctx.enqueue(*[branch.job(depth - 1)] * 3, join=True)
        return 1

    @ol.task
    async def count(ctx: Context) -> int:
        return sum([one async for one in ctx.results()])

    _, last = await ol.aenqueue(chain(branch.job(2), count.job()))
    async with work(ol):
        assert (await ended(ol, last, 30.0)).result == 1 + 3 + 9
    assert (await ol.aflow(str(last.flow))).counts["succeeded"] == 14


async def test_one_failure_stops_the_others_and_the_error_callback_runs(ol: Outlast) -> None:
    """R097, R120: nobody cancels by hand: the worker sees that the group is broken."""
    gate = asyncio.Event()
    stopped = []

    @ol.task(retry=Retry(max_attempts=1))
    async def fails() -> None:
        await gate.wait()
        raise ValueError("no")

    @ol.task
    async def runs_on() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            stopped.append(1)
            raise

    @ol.task
    async def after(ctx: Context) -> list[str]:
        return [job.state async for job in ctx.prerequisites()]

    bad, slow, later, last = await ol.aenqueue(
        group(fails.job(), runs_on.job(), runs_on.using(delay=60.0).job(), fail_fast=True).then(
            after.job(), when="finished"
        )
    )
    async with work(ol):
        await started(ol, slow)
        gate.set()
        done = await ended(ol, last, 20.0)
    assert done.result == ["dead", "cancelled", "cancelled"]
    assert stopped == [1]
    assert ol.job(later.id).error["message"] == f"job {bad.id} is dead"  # type: ignore[index]


async def test_a_cancelled_flow_stops_what_runs_and_starts_nothing(ol: Outlast) -> None:
    """R115, R116: also when who cancelled it died right after saying so (`half-cancelled`)."""
    from outlast.ops.cancel_flow import mark_cancelled

    @ol.task
    async def runs_on(ctx: Context) -> None:
        await asyncio.sleep(60)

    for by_worker in (False, True):
        slow, *_, last = await ol.aenqueue(
            group(runs_on.job(), runs_on.using(delay=60.0).job()).then(runs_on.job())
        )
        async with work(ol):
            await started(ol, slow)
            if by_worker:
                await ol.store.arun(mark_cancelled, str(last.flow), "ann", "enough")
            else:
                await ol.acancel_flow(str(last.flow), "enough")

            async def over(flow: str = str(last.flow)) -> bool:
                return (await ol.aflow(flow)).state == "cancelled"

            await aeventually(over, 20.0)
            assert (await ol.aflow(str(last.flow))).counts[State.CANCELLED] == 3
