"""Whole worker processes, interrupted at every statement from registration to exit."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from ...model.task import Call
from ...worker.worker import Worker
from ..scenario_context import ScenarioContext
from .scenario import ARM_LATER, scenario

MAX_WORK_S = 15.0  # limit for work that takes a tenth of a second


@scenario("worker", max_points=48)
def work(ctx: ScenarioContext) -> Iterator[None]:
    """Handlers of every kind: async, in a thread, failing, postponing, timing out, with events and
    follow-up jobs."""
    work, queue = ctx.work, ctx.queue
    tasks = (work.mark, work.thread, work.parent, work.fails_once, work.postpones)
    calls: list[Call] = [task.using(queue=queue).job() for task in tasks]
    calls.append(work.lingers.using(queue=queue, timeout=0.03).job())
    calls.append(work.permanent.using(queue=queue).job())
    for job in ctx.ol.enqueue(*calls):
        ctx.record_promise(job.id, "dead" if job.task == "permanent" else "succeeded")
    yield
    asyncio.run(work_until(ctx, lambda counts: counts["succeeded"] >= 8 and counts["dead"] >= 1))


@scenario("worker-one", max_points=24, owner=True)
def work_on_one(ctx: ScenarioContext) -> Iterator[None]:
    ctx.record_promise(ctx.work.parent.using(queue=ctx.queue).enqueue().id)
    yield
    asyncio.run(work_until(ctx, lambda counts: counts["succeeded"] >= 3))


ITEM_STATES = {"once": "succeeded", "never": "dead", "spoils": "dead"}


@scenario("worker-batch", max_points=24)
def work_on_many(ctx: ScenarioContext) -> Iterator[None]:
    """A batch task: valid items, which have no second attempt, succeed independently of the faulty
    ones, which are named, or found by halving."""
    task = ctx.work.together.using(queue=ctx.queue)
    good = [task.using(max_attempts=1).job("good") for _ in range(9)]
    calls = [*good[:4], *(task.job(item) for item in ITEM_STATES), *good[4:]]
    for job in ctx.ol.enqueue(*calls):
        ctx.record_promise(job.id, ITEM_STATES.get(job.args["item"], "succeeded"))
    yield
    asyncio.run(work_until(ctx, lambda counts: counts["succeeded"] >= 10 and counts["dead"] >= 2))


@scenario("worker-cancel", max_points=16)
def work_on_unwanted(ctx: ScenarioContext) -> Iterator[object]:
    """A running handler is stopped by a cancel that its worker finds at a renewal."""
    job = ctx.work.lingers.using(queue=ctx.queue).enqueue()
    ctx.record_promise(job.id, "cancelled", "succeeded")
    yield ARM_LATER
    asyncio.run(_cancelled(ctx, job.id))


async def _cancelled(ctx: ScenarioContext, id: str) -> None:
    async def cancel() -> None:
        while not handlers_begun(ctx, 1):  # noqa: ASYNC110 - a file has no event
            await asyncio.sleep(0.005)
        ctx.interceptor.armed = True
        job = await ctx.ol.acancel(id)
        if job.fence == 1:  # a later claim does not linger, and may succeed before the cancel
            ctx.record_promise(id, "cancelled")

    cancelling = asyncio.create_task(cancel())
    await work_until(ctx, lambda counts: counts["cancelled"] >= 1)
    await cancelling


@scenario("shutdown", max_points=24)
def shut_down(ctx: ScenarioContext) -> Iterator[object]:
    """SIGTERM while handlers run: jobs that do not end in time are released, unspent."""
    for task in (ctx.work.lingers, ctx.work.lingers_in_thread):
        ctx.record_promise(task.using(queue=ctx.queue).enqueue().id)
    yield ARM_LATER

    def terminate() -> None:
        while not handlers_begun(ctx, 2):
            time.sleep(0.005)
        ctx.interceptor.armed = True
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=terminate, daemon=True).start()
    make_worker(ctx).run()


async def work_until(ctx: ScenarioContext, enough: Callable[[Counter[str]], bool]) -> None:
    """Run a worker until a condition holds, then stop it."""
    working = make_worker(ctx)
    running = asyncio.create_task(working.arun())
    longest = time.monotonic() + (MAX_WORK_S if ctx.max_work_s is None else ctx.max_work_s)
    try:
        while not (enough(working.counts) or running.done() or time.monotonic() > longest):
            await asyncio.wait([running], timeout=0.005)
        working.stop()
        await running
    finally:
        await ctx.ol.store.aclose()


async def wait_for_successes(working: Worker, number: int) -> bool:
    """Wait until a worker has succeeded this often; False if it takes too long."""
    until = time.monotonic() + MAX_WORK_S
    while working.counts["succeeded"] < number and time.monotonic() < until:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    return working.counts["succeeded"] >= number


def make_worker(ctx: ScenarioContext, queue: str | list[str] = "", **settings: Any) -> Worker:
    quick: dict[str, Any] = {
        "lease": ctx.lease,
        "renew_every": ctx.lease / 5,
        "reclaim_every": 0.1,
        "poll_max": 0.05,
        "watch_every": 0.02,
        "grace": 0.05,
        "cancel_grace": 0.2,
    }
    return ctx.ol.worker(queue or ctx.queue, concurrency=8, **quick | settings)


def handlers_begun(ctx: ScenarioContext, number: int) -> bool:
    """Whether this many handlers of this process have started."""
    ours = [entry for entry in ctx.ledger.read() if entry.pid == os.getpid()]
    return sum(entry.kind == "began" for entry in ours) >= number
