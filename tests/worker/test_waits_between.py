"""Waits between the parts of larger work: parallel steps, fan-outs, milestones."""

from __future__ import annotations

import asyncio
from functools import partial

from outlast import Context, Flow, Outlast, Retry, chain

from .working import ended, work

TWICE = Retry(max_attempts=2, base=0.0, jitter=0.0)
NAP_S = 0.05


async def test_parallel_steps_around_waits_stay_bounded_and_are_not_repeated(ol: Outlast) -> None:
    """R106, R105: cap 4, 20 units, one raises, a sleep before and after them: never more than 4 at
    once, none running at the end of any attempt, and each that was kept is called once."""
    running: set[int] = set()
    called: list[int] = []
    most, left = 0, list[int]()

    async def unit(n: int) -> int:
        nonlocal most
        called.append(n)
        running.add(n)
        most = max(most, len(running))
        try:
            await asyncio.sleep(0.005)
            if n == 9 and called.count(9) == 1:
                raise ValueError("the first time")
            return n * n
        finally:
            running.discard(n)

    @ol.task(retry=TWICE)
    async def fans_out(ctx: Context) -> list[int]:
        try:
            await ctx.sleep(NAP_S, name="before")
            found = await ctx.steps({f"unit {n}": partial(unit, n) for n in range(20)}, limit=4)
            await ctx.sleep(NAP_S, name="after")
            return list(found.values())
        finally:
            left.append(len(running))

    async with work(ol):
        job = await ended(ol, await fans_out.aenqueue(), 60.0)
    assert job.result == [n * n for n in range(20)]
    assert 2 <= most <= 4
    assert left == [0] * 4  # the sleep, the error, the other sleep, the end
    assert sorted(called) == sorted([*range(20), 9])
    assert (job.attempt, job.failures) == (2, 1), "no wait is charged"


async def test_a_fan_out_whose_branches_wait_has_one_callback_after_all(ol: Outlast) -> None:
    """R107: 3 levels; each branch sleeps before and after it fans out, and fans out once: jobs are
    enqueued with the success of the attempt that ends it, not with one that ends in a wait."""

    @ol.task
    async def branch(depth: int, ctx: Context) -> int:
        await ctx.sleep(NAP_S, name="before")
        if depth:
            ctx.enqueue(*[branch.job(depth - 1)] * 3, join=True)
        await ctx.sleep(NAP_S, name="after")
        if depth:
            ctx.enqueue(branch.job(0), join=True)
        return 1

    called: list[str] = []

    @ol.task
    async def count(ctx: Context) -> int:
        called.append(ctx.job.id)
        return sum([one async for one in ctx.results()])

    _, last = await ol.aenqueue(chain(branch.job(2), count.job()))
    async with work(ol):
        job = await ended(ol, last, 60.0)
    assert job.result == 1 + (3 + 1) + 3 * (3 + 1)
    assert (await ol.acounts())["succeeded"] == job.result + 1
    assert called == [last.id]


async def test_a_milestone_counts_ends_and_no_waits(ol: Outlast) -> None:
    """R108: each fires once, when so many have ended; a job that waits has not."""
    ends: list[int] = []
    fired: list[tuple[int, int]] = []

    @ol.task
    async def unit(n: int, ctx: Context) -> None:
        for _ in range(2):
            await ctx.sleep(NAP_S)
        ends.append(n)

    @ol.task
    async def mark(percent: int) -> None:
        fired.append((percent, len(ends)))

    flow = Flow()
    for n in range(10):
        flow.add(unit.job(n))
    marks = [flow.milestone(percent / 100, mark.job(percent)) for percent in range(10, 101, 10)]
    jobs = await ol.aenqueue(flow)
    async with work(ol):
        for job in jobs:
            await ended(ol, job, 60.0)
    assert len(marks) == 10
    assert sorted(percent for percent, _ in fired) == list(range(10, 101, 10))
    assert all(seen * 10 >= percent for percent, seen in fired)
