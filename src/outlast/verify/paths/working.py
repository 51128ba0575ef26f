"""Whole worker processes: all that a worker says to its database, from arrival to leave."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from ...worker.worker import Worker
from ..stage import Stage
from .path import LATER, path

LONGEST = 15.0  # seconds for work that takes a tenth of one


@path("worker", most=48)
def work(stage: Stage) -> Iterator[None]:
    """Handlers of every kind: async, in a thread, failing, postponing, timing out, with events and
    follow-up jobs."""
    work, queue = stage.work, stage.queue
    tasks = (work.mark, work.thread, work.parent, work.fails_once, work.postpones)
    calls = [task.using(queue=queue).job() for task in tasks]
    calls.append(work.lingers.using(queue=queue, timeout=0.03).job())
    calls.append(work.permanent.using(queue=queue).job())
    for job in stage.ol.enqueue(*calls):
        stage.promise(job.id, "dead" if job.task == "permanent" else "succeeded")
    yield
    asyncio.run(until(stage, lambda counts: counts["succeeded"] >= 8 and counts["dead"] >= 1))


@path("worker-one", most=24, owner=True)
def work_on_one(stage: Stage) -> Iterator[None]:
    stage.promise(stage.work.parent.using(queue=stage.queue).enqueue().id)
    yield
    asyncio.run(until(stage, lambda counts: counts["succeeded"] >= 3))


ITEMS = {"once": "succeeded", "never": "dead", "spoils": "dead"}


@path("worker-batch", most=24)
def work_on_many(stage: Stage) -> Iterator[None]:
    """One call for many jobs: the good ones, which have no second try, succeed whatever the others
    do; those are named, or found by halves."""
    task = stage.work.together.using(queue=stage.queue)
    good = [task.using(max_attempts=1).job("good") for _ in range(9)]
    calls = [*good[:4], *(task.job(item) for item in ITEMS), *good[4:]]
    for job in stage.ol.enqueue(*calls):
        stage.promise(job.id, ITEMS.get(job.args["item"], "succeeded"))
    yield
    asyncio.run(until(stage, lambda counts: counts["succeeded"] >= 10 and counts["dead"] >= 2))


@path("worker-cancel", most=16)
def work_on_unwanted(stage: Stage) -> Iterator[object]:
    """A running handler is told to stop, by a cancel that its worker finds when it renews."""
    job = stage.work.lingers.using(queue=stage.queue).enqueue()
    stage.promise(job.id, "cancelled", "succeeded")
    yield LATER
    asyncio.run(_cancelled(stage, job.id))


async def _cancelled(stage: Stage, id: str) -> None:
    async def cancel() -> None:
        while not began(stage, 1):  # noqa: ASYNC110 - a file has no event
            await asyncio.sleep(0.005)
        stage.trap.armed = True
        job = await stage.ol.acancel(id)
        if job.fence == 1:  # a later claim does not linger, and may well succeed before it hears
            stage.promise(id, "cancelled")

    cancelling = asyncio.create_task(cancel())
    await until(stage, lambda counts: counts["cancelled"] >= 1)
    await cancelling


@path("shutdown", most=24)
def shut_down(stage: Stage) -> Iterator[object]:
    """SIGTERM while handlers run: what does not end in time is put back, unspent."""
    for task in (stage.work.lingers, stage.work.lingers_in_thread):
        stage.promise(task.using(queue=stage.queue).enqueue().id)
    yield LATER

    def terminate() -> None:
        while not began(stage, 2):
            time.sleep(0.005)
        stage.trap.armed = True
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=terminate, daemon=True).start()
    worker(stage).run()


async def until(stage: Stage, enough: Callable[[Counter[str]], bool]) -> None:
    """Work until it is enough, then leave as a worker does."""
    working = worker(stage)
    running = asyncio.create_task(working.arun())
    longest = time.monotonic() + (LONGEST if stage.patience is None else stage.patience)
    try:
        while not (enough(working.counts) or running.done() or time.monotonic() > longest):
            await asyncio.wait([running], timeout=0.005)
        working.stop()
        await running
    finally:
        await stage.ol.store.aclose()


async def ended(working: Worker, number: int) -> bool:
    """Wait until a worker has succeeded so often; False if it takes for ever."""
    until = time.monotonic() + LONGEST
    while working.counts["succeeded"] < number and time.monotonic() < until:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    return working.counts["succeeded"] >= number


def worker(stage: Stage, queue: str | list[str] = "", **settings: Any) -> Worker:
    quick: dict[str, Any] = {
        "lease": stage.lease,
        "renew_every": stage.lease / 5,
        "reclaim_every": 0.1,
        "poll_max": 0.05,
        "watch_every": 0.02,
        "grace": 0.05,
        "cancel_grace": 0.2,
    }
    return stage.ol.worker(queue or stage.queue, concurrency=8, **quick | settings)


def began(stage: Stage, number: int) -> bool:
    """Whether so many handlers of this process have begun."""
    ours = [entry for entry in stage.ledger.read() if entry.pid == os.getpid()]
    return sum(entry.what == "began" for entry in ours) >= number
