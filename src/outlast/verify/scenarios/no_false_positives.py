"""False positives: each safety net beside a live owner that it must not affect."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ...model.errors import TooLate
from ...model.lifecycle import Outcome
from ...ops import duties
from ...ops import workers as worker_ops
from ...ops.operation import Op, Rows, Statement
from ...ops.reclaim import decide_by_row, reclaim, reclaim_from_workers, reclaim_overdue
from ...ops.renew import renew
from ...worker.worker import Worker
from ..scenario_context import ScenarioContext
from .maintenance import EXPIRED_AFTER_S
from .scenario import ARM_LATER, scenario
from .whole_workers import handlers_begun, make_worker

HOUR_S = 3600.0
EXPIRY_S = 0.3  # long enough to be claimed before
LONG_LEASE_S = 8.0  # seconds: longer than the scenario takes, and not for ever


@scenario("wrong-clock")
def wrong_clock(ctx: ScenarioContext) -> Iterator[None]:
    """An owner whose clock is an hour slow holds its jobs as long as any other."""
    ctx.enqueue(2)
    with clock(-HOUR_S):
        since = time.monotonic()
        claims = ctx.record_begun(ctx.claim())
        yield
        ctx.run(reclaim)
        ctx.run(renew, ctx.owner, {claim.id: claim.fence for claim in claims}, ctx.lease)
        ctx.run(reclaim)
        ends = [(claim, ctx.attempt_end(Outcome.SUCCEEDED, claim)) for claim in claims]
        ctx.finish_in_time(ends, since)


@contextmanager
def clock(wrong: float) -> Iterator[None]:
    """This process's clock is wrong by this many seconds."""
    right = time.time
    time.time = lambda: right() + wrong
    try:
        yield
    finally:
        time.time = right


@scenario("overdue")
def overdue(ctx: ScenarioContext) -> Iterator[None]:
    """A job is ended after its timeout although its owner is alive, but not before."""
    late = ctx.work.fails_once.using(queue=ctx.queue, timeout=0.05).enqueue()
    ctx.record_promise(late.id, "succeeded", "dead")
    ctx.enqueue(1, timeout=HOUR_S)
    since = time.monotonic()
    claims = ctx.record_begun(ctx.claim())
    time.sleep(0.05 + EXPIRED_AFTER_S)
    yield
    ctx.run(reclaim_overdue, 0.0, decide_by_row)
    ends = {claim.id: (claim, ctx.attempt_end(Outcome.SUCCEEDED, claim)) for claim in claims}
    ctx.finish([ends.pop(late.id)])
    ctx.finish_in_time(list(ends.values()), since)


@scenario("expire-running", max_points=6)
def expire_running(ctx: ScenarioContext) -> Iterator[None]:
    """A job that started before its expiry continues."""
    since = time.monotonic()
    ctx.enqueue(1, "succeeded", "cancelled", expires=EXPIRY_S)
    claims = ctx.record_begun(ctx.claim())
    time.sleep(EXPIRY_S + EXPIRED_AFTER_S)
    yield
    ctx.run(duties.expire)
    ends = [(claim, ctx.attempt_end(Outcome.SUCCEEDED, claim)) for claim in claims]
    ctx.finish_in_time(ends, since)


@scenario("redrive-running")
def redrive_running(ctx: ScenarioContext) -> Iterator[None]:
    """Running and succeeded jobs are not redriven."""
    (done,) = ctx.enqueue_and_claim()
    ctx.finish([(done, ctx.attempt_end(Outcome.SUCCEEDED, done))])
    since = time.monotonic()
    (claim,) = ctx.enqueue_and_claim()
    yield
    ctx.ol.retry(claim.id)
    try:
        ctx.ol.retry(done.id)
    except TooLate:
        pass
    else:
        ctx.report("I4", "zombie", "a job that had succeeded was redriven")
    ctx.finish_in_time([(claim, ctx.attempt_end(Outcome.SUCCEEDED, claim))], since)


@scenario("bury")
def bury_owner(ctx: ScenarioContext) -> Iterator[None]:
    """The jobs and the registration of a dead worker are removed, and no other worker's."""
    ctx.run(worker_ops.register, ctx.ol.worker(ctx.queue).registration_row() | {"id": ctx.owner})
    ctx.enqueue_and_claim(2)
    ctx.owner, gone = f"{ctx.owner}-beside", ctx.owner
    since = time.monotonic()
    (claim,) = ctx.enqueue_and_claim()
    yield
    ctx.run(reclaim_from_workers, [gone], "exit", "verify")
    ctx.finish_in_time([(claim, ctx.attempt_end(Outcome.SUCCEEDED, claim))], since)


@scenario("neighbours", max_points=4)
def neighbours(ctx: ScenarioContext) -> Iterator[None]:
    """Two workers run side by side, and neither considers the other dead."""
    job = ctx.work.tarries.using(queue=ctx.queue).enqueue()
    ctx.record_promise(job.id)
    since = time.monotonic()
    yield
    asyncio.run(_run_two_workers(ctx))
    lost = ctx.ol.job(job.id).crashes
    if lost and time.monotonic() - since < LONG_LEASE_S:
        ctx.ledger.write("robbed", job.id, 1)


async def _run_two_workers(ctx: ScenarioContext) -> None:
    here = make_worker(ctx, lease=LONG_LEASE_S)
    beside = make_worker(ctx, f"{ctx.queue}-beside", lease=LONG_LEASE_S)
    try:
        async with beside, here:
            await _wait_until_done(ctx, here)
    finally:
        await ctx.ol.store.aclose()


async def _wait_until_done(ctx: ScenarioContext, working: Worker) -> None:
    """Wait for the jobs, and report a job that runs twice: it was reclaimed from its first owner.
    Once its lease may have expired, that would prove nothing."""
    until = time.monotonic() + LONG_LEASE_S
    while not (working.counts["succeeded"] or handlers_begun(ctx, 2)) and time.monotonic() < until:  # noqa: ASYNC110
        await asyncio.sleep(0.02)


@scenario("lock", max_points=6)
def lock(ctx: ScenarioContext) -> Iterator[object]:
    """A worker with a liveness lock dies, whose lease lasts for an hour."""
    yield ARM_LATER
    asyncio.run(_with_lock(ctx))


async def _with_lock(ctx: ScenarioContext) -> None:
    working = make_worker(ctx, lease=HOUR_S)
    try:
        async with working:
            while working.id not in await ctx.ol.store.arun(_workers_with_lock):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            job = await ctx.work.lingers.using(queue=ctx.queue).aenqueue()
            ctx.record_promise(job.id)
            while not handlers_begun(ctx, 1):  # noqa: ASYNC110 - a file has no event
                await asyncio.sleep(0.005)
            ctx.interceptor.armed = True
            await asyncio.sleep(0.25)
    finally:
        await ctx.ol.store.aclose()


def _workers_with_lock() -> Op[set[str]]:
    rows: Rows = yield Statement("outlast.verify:proven")
    return {id for (id,) in rows}
