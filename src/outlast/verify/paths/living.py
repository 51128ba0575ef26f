"""The living are left alone: each net, beside somebody whom it must not catch."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ...model.errors import TooLate
from ...model.lifecycle import Outcome
from ...ops import duties
from ...ops.reclaim import bury, by_row, reclaim, reclaim_overdue
from ...ops.renew import renew
from ...ops.statement import Op, Rows, Statement
from ...worker.worker import Worker
from ..stage import Stage
from .healing import A_MOMENT
from .path import LATER, path
from .working import began, worker

AN_HOUR = 3600.0
EXPIRY = 0.3  # seconds: enough to be claimed before
LONG_LEASE = 8.0  # seconds: longer than all of it takes, and not for ever


@path("wrong-clock")
def wrong_clock(stage: Stage) -> Iterator[None]:
    """An owner whose clock is an hour slow holds its jobs for as long as any other."""
    stage.enqueued(2)
    with clock(-AN_HOUR):
        since = time.monotonic()
        claims = stage.began(stage.claim())
        yield
        stage.run(reclaim)
        stage.run(renew, stage.owner, {claim.id: claim.fence for claim in claims}, stage.lease)
        stage.run(reclaim)
        ends = [(claim, stage.ended(Outcome.SUCCEEDED, claim)) for claim in claims]
        stage.finish_in_time(ends, since)


@contextmanager
def clock(wrong: float) -> Iterator[None]:
    """Whoever asks this process for the time gets it wrong by so many seconds."""
    right = time.time
    time.time = lambda: right() + wrong
    try:
        yield
    finally:
        time.time = right


@path("overdue")
def overdue(stage: Stage) -> Iterator[None]:
    """Past its own deadline a job is taken from an owner that lives; before it, it is not."""
    late = stage.work.fails_once.using(queue=stage.queue, timeout=0.05).enqueue()
    stage.promise(late.id, "succeeded", "dead")
    stage.enqueued(1, timeout=AN_HOUR)
    since = time.monotonic()
    claims = stage.began(stage.claim())
    time.sleep(0.05 + A_MOMENT)
    yield
    stage.run(reclaim_overdue, 0.0, by_row)
    ends = {claim.id: (claim, stage.ended(Outcome.SUCCEEDED, claim)) for claim in claims}
    stage.finish([ends.pop(late.id)])
    stage.finish_in_time(list(ends.values()), since)


@path("expire-running", most=6)
def expire_running(stage: Stage) -> Iterator[None]:
    """What was started before its expiry may take its time."""
    since = time.monotonic()
    stage.enqueued(1, "succeeded", "cancelled", expires=EXPIRY)
    claims = stage.began(stage.claim())
    time.sleep(EXPIRY + A_MOMENT)
    yield
    stage.run(duties.expire)
    ends = [(claim, stage.ended(Outcome.SUCCEEDED, claim)) for claim in claims]
    stage.finish_in_time(ends, since)


@path("redrive-running")
def redrive_running(stage: Stage) -> Iterator[None]:
    """Who runs needs no new life, and who has succeeded gets none."""
    (done,) = stage.claimed()
    stage.finish([(done, stage.ended(Outcome.SUCCEEDED, done))])
    since = time.monotonic()
    (claim,) = stage.claimed()
    yield
    stage.ol.retry(claim.id)
    try:
        stage.ol.retry(done.id)
    except TooLate:
        pass
    else:
        stage.saw("I4", "zombie", "a job that had succeeded was redriven")
    stage.finish_in_time([(claim, stage.ended(Outcome.SUCCEEDED, claim))], since)


@path("bury")
def bury_owner(stage: Stage) -> Iterator[None]:
    """A worker is known to be gone: what it ran is taken back, with its card, and nobody else's."""
    stage.run(duties.arrive, stage.ol.worker(stage.queue).card() | {"id": stage.owner})
    stage.claimed(2)
    stage.owner, gone = f"{stage.owner}-beside", stage.owner
    since = time.monotonic()
    (claim,) = stage.claimed()
    yield
    stage.run(bury, [gone], "exit", "verify")
    stage.finish_in_time([(claim, stage.ended(Outcome.SUCCEEDED, claim))], since)


@path("neighbours", most=4)
def neighbours(stage: Stage) -> Iterator[None]:
    """Two workers side by side: neither takes the other for dead."""
    job = stage.work.tarries.using(queue=stage.queue).enqueue()
    stage.promise(job.id)
    since = time.monotonic()
    yield
    asyncio.run(_side_by_side(stage))
    lost = stage.ol.job(job.id).crashes
    if lost and time.monotonic() - since < LONG_LEASE:
        stage.ledger.write("robbed", job.id, 1)


async def _side_by_side(stage: Stage) -> None:
    here = worker(stage, lease=LONG_LEASE)
    beside = worker(stage, f"{stage.queue}-beside", lease=LONG_LEASE)
    try:
        async with beside, here:
            await _done_or_robbed(stage, here)
    finally:
        await stage.ol.store.aclose()


async def _done_or_robbed(stage: Stage, working: Worker) -> None:
    """A job that is run a second time was taken from whoever ran it first: later, when its lease
    might have run out by itself, that would prove nothing."""
    until = time.monotonic() + LONG_LEASE
    while not (working.counts["succeeded"] or began(stage, 2)) and time.monotonic() < until:  # noqa: ASYNC110
        await asyncio.sleep(0.02)


@path("lock", most=6)
def lock(stage: Stage) -> Iterator[object]:
    """A worker that holds its liveness lock dies; its lease would last for an hour."""
    yield LATER
    asyncio.run(_with_lock(stage))


async def _with_lock(stage: Stage) -> None:
    working = worker(stage, lease=AN_HOUR)
    try:
        async with working:
            while working.id not in await stage.ol.store.arun(_proven):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            job = await stage.work.lingers.using(queue=stage.queue).aenqueue()
            stage.promise(job.id)
            while not began(stage, 1):  # noqa: ASYNC110 - a file has no event
                await asyncio.sleep(0.005)
            stage.trap.armed = True
            await asyncio.sleep(0.25)
    finally:
        await stage.ol.store.aclose()


def _proven() -> Op[set[str]]:
    rows: Rows = yield Statement("proven")
    return {id for (id,) in rows}
