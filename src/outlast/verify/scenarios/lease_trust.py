"""Expired leases that do not prove a death: stepped clocks, foreign locks, live owners."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

from ...model.errors import StoreBusy
from ...model.lease_trust import ALWAYS, BELIEVE, LeaseTrust
from ...model.lifecycle import Outcome
from ...model.worker_names import remote_id
from ...ops import duties
from ...ops import workers as worker_ops
from ...ops.operation import BEGIN, Op, Statement
from ...ops.reclaim import decide_by_row, reclaim, reclaim_overdue, signs_of_loss
from ...store.sqlite import liveness
from ..scenario_context import ScenarioContext
from .maintenance import EXPIRED_AFTER_S
from .scenario import scenario
from .whole_workers import handlers_begun, make_worker

HOUR_S = 3600.0
LONG_LEASE_S = 6.0  # seconds: longer than a renewal takes on a busy machine
SHORT_LEASE_S = 1.2  # seconds
LOCKED_LEASE_S = 2.4  # lease of an owner that a lock keeps from renewing
LOCK_WAIT_S = 0.1  # seconds after which a sweep gives up waiting
LOCK_BEYOND_LEASE_S = 0.8  # seconds by which a lock outlasts the lease
MAX_CRASHES = 3
JOB_TIMEOUT_S = 1.5  # seconds: longer than two statements take on a busy machine
# Of registered owners, only those with a lease of at most half of LONG_LEASE_S count as gone.
SHORT_TRUST = BELIEVE._replace(stable=LONG_LEASE_S / 4, unknown=ALWAYS)


@scenario("late-sweep", removes_jobs=True, max_points=8)
def late_sweep(ctx: ScenarioContext) -> Iterator[None]:
    """A sweep that runs later than expected, or soon after leases were distrusted, reclaims
    nothing."""
    ctx.run(
        worker_ops.register,
        ctx.ol.worker(lease=LONG_LEASE_S).registration_row() | {"id": ctx.owner},
    )
    _see_unproven_calm(ctx)
    ctx.enqueue(2)
    claims = ctx.record_begun(ctx.claim(lease=0.001))
    time.sleep(EXPIRED_AFTER_S)
    yield
    locked = ctx.ol.store.confirm_locked
    ctx.run(reclaim, 500, 0, SHORT_TRUST._replace(until=1.0, stable=LONG_LEASE_S), locked)
    ctx.run(reclaim, 500, 0, SHORT_TRUST, locked)
    ends = [(claim, ctx.attempt_end(Outcome.SUCCEEDED, claim)) for claim in claims]
    for transition in ctx.finish(ends).lost:
        ctx.ledger.write("robbed", *transition.claim.claim_key)


def _see_unproven_calm(ctx: ScenarioContext) -> None:
    """A stable period ends with its last probe, and a lock that stops renewals stops a probe."""
    trust = LeaseTrust(LONG_LEASE_S, LONG_LEASE_S / 3)
    trust.observe_clock(HOUR_S, 0.0, 0.01)
    trust.probed(0.0, 0.01)
    if trust.belief(2 * LONG_LEASE_S).stable > 0:
        ctx.report("I2", "owner-dead", "a stable period was believed without a probe")
    if ctx.workspace.is_sqlite:
        return
    other = ctx.ol.store.clone(lock_timeout=LOCK_WAIT_S)
    try:
        with share_lock(ctx):
            other.run(reclaim, 1, 0, BELIEVE._replace(until=1.0))
    except StoreBusy:
        pass
    else:
        ctx.report("I2", "owner-dead", "a sweep succeeded while no owner could renew")
    finally:
        other.close()


@contextmanager
def share_lock(ctx: ScenarioContext) -> Iterator[None]:
    """Take the lock of CREATE INDEX: no worker can renew, but rows can be locked."""
    from psycopg import sql

    with ctx.workspace.connect_past_proxy() as connection:
        job = sql.Identifier(ctx.workspace.schema, "job")
        connection.execute(sql.SQL("LOCK TABLE {} IN SHARE MODE").format(job))
        yield
        connection.rollback()


@scenario("early-deadline", removes_jobs=True, max_points=8)
def early_deadline(ctx: ScenarioContext) -> Iterator[None]:
    """After a clock step, the run time of a job counts only from the step on."""
    ctx.enqueue(1, timeout=JOB_TIMEOUT_S)
    since = time.monotonic()
    # When its lease has ended, sweeps of other scenarios may reclaim the job.
    claims = ctx.record_begun(ctx.claim(lease=LONG_LEASE_S))
    if not ctx.run(signs_of_loss, 0.0, EXPIRED_AFTER_S).lease:
        ctx.report("I2", "stalled-net", "a lease from before a step back is not checked")
    time.sleep(JOB_TIMEOUT_S + EXPIRED_AFTER_S)
    yield
    now = ctx.run(signs_of_loss).clock
    ctx.run(reclaim_overdue, 0.0, decide_by_row, 500, 0, BELIEVE._replace(since=now))
    ends = [(c, ctx.attempt_end(Outcome.SUCCEEDED, c)) for c in claims]
    ctx.finish_in_time(ends, since, LONG_LEASE_S)


@scenario("stalled", removes_jobs=True, max_points=8)
def stalled(ctx: ScenarioContext) -> Iterator[None]:
    """A live process stops renewing: no crash is charged, and the number of reclaims is bounded."""
    ctx.run(
        worker_ops.register,
        ctx.ol.worker(lease=SHORT_LEASE_S).registration_row() | {"id": ctx.owner},
    )
    (job,) = ctx.enqueue(1, "succeeded", "dead", max_crashes=MAX_CRASHES)
    with _lock_of(ctx):
        yield
        for stalls in range(1, MAX_CRASHES + 2):
            if not ctx.record_begun(ctx.claim(lease=0.001)):
                break
            time.sleep(EXPIRED_AFTER_S)
            ctx.run(reclaim, 500, 0, SHORT_TRUST, ctx.ol.store.confirm_locked)
            if stalls == 1 and ctx.ol.job(job.id).crashes:
                message = "a crash was charged while the owner's process existed"
                ctx.report("I4", "miscounted", message)
        stands = ctx.ol.job(job.id)
    if stands.fence > MAX_CRASHES:
        ctx.report("I4", "poison", f"a job was reclaimed from {stands.fence} wedged processes")


stalled.exclusive = True  # sweeps of other scenarios would charge a crash


@contextmanager
def _lock_of(ctx: ScenarioContext) -> Iterator[None]:
    """Hold the liveness lock of the context's owner."""
    if ctx.workspace.is_sqlite:
        proof = liveness.LivenessFile(ctx.ol.store.path, ctx.owner)  # type: ignore[attr-defined]
        proof.acquire()
        ctx.run(worker_ops.prove_liveness, ctx.owner)
        try:
            yield
        finally:
            proof.forget()
        return
    with ctx.workspace.connect_past_proxy() as connection:
        connection.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", (ctx.owner,))
        connection.commit()
        ctx.run(worker_ops.prove_liveness, ctx.owner)
        yield


@scenario("stepped-clock", removes_jobs=True, max_points=3)
def stepped_clock(ctx: ScenarioContext) -> Iterator[None]:
    """All leases ended an hour ago, as after a clock step: owners renew before others reclaim."""
    job = ctx.work.tarries.using(queue=ctx.queue).enqueue()
    ctx.record_promise(job.id)
    _see_steps(ctx)
    yield
    if asyncio.run(_beside_sweeper(ctx)):
        ctx.ledger.write("robbed", job.id, 1)


def _see_steps(ctx: ScenarioContext) -> None:
    for step in (HOUR_S, -HOUR_S):
        trust = LeaseTrust(LONG_LEASE_S, LONG_LEASE_S / 3)
        trust.observe_clock(HOUR_S * 10, 0.0, 0.01)
        trust.probed(0.0, 0.01)
        if not trust.observe_clock(HOUR_S * 10 + step, 1.0, 1.01) or trust.belief(2.0).stable > 0:
            ctx.report("I2", "owner-dead", f"a step of the clock by {step:g} s was not detected")


async def _beside_sweeper(ctx: ScenarioContext) -> int:
    """The number of jobs that their owner lost. (A job whose claim response was lost is claimed
    again.)"""
    here = make_worker(ctx, lease=LONG_LEASE_S, renew_every=LONG_LEASE_S / 6)
    beside = make_worker(ctx, f"{ctx.queue}-beside", lease=LONG_LEASE_S)
    try:
        async with beside, here:
            until = time.monotonic() + LONG_LEASE_S
            while not handlers_begun(ctx, 1) and time.monotonic() < until:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            await ctx.ol.store.arun(_expire_leases, ctx.queue)
            while not here.counts["succeeded"] and time.monotonic() < until:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    finally:
        await ctx.ol.store.aclose()
    return here.counts["lost"]


def _expire_leases(queue: str) -> Op[None]:
    yield Statement("outlast.verify:expire_leases", {"queue": queue})


@scenario("foreign-lock", max_points=2)
def foreign_lock(ctx: ScenarioContext) -> Iterator[None]:
    """Another program holds a write lock for longer than a lease: the owner keeps its job."""
    job = ctx.work.naps.using(queue=ctx.queue).enqueue(
        seconds=LOCKED_LEASE_S + 2 * LOCK_BEYOND_LEASE_S
    )
    ctx.record_promise(job.id)
    yield
    asyncio.run(_under_lock(ctx))


foreign_lock.exclusive = True  # sweeps of other scenarios trust every lease


async def _under_lock(ctx: ScenarioContext) -> None:
    here = make_worker(ctx, lease=LOCKED_LEASE_S, renew_every=LOCKED_LEASE_S / 4)
    try:
        async with here:
            until = time.monotonic() + 5 * LOCKED_LEASE_S
            while not handlers_begun(ctx, 1) and time.monotonic() < until:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            await asyncio.to_thread(hold_lock, ctx, LOCKED_LEASE_S + LOCK_BEYOND_LEASE_S)
            while not here.counts["succeeded"] and time.monotonic() < until:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            if here.counts["lost"] and ctx.max_work_s is None:
                ctx.report("I3", "zombie", "an owner disowned its job because of a foreign lock")
    finally:
        await ctx.ol.store.aclose()


def hold_lock(ctx: ScenarioContext, seconds: float) -> None:
    """Hold a lock that prevents all other writes of jobs."""
    if ctx.workspace.is_sqlite:
        path = ctx.workspace.url.removeprefix("sqlite:///")
        with closing(sqlite3.connect(path, timeout=30.0, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            time.sleep(seconds)
            connection.execute("ROLLBACK")
        return
    from psycopg import sql

    with ctx.workspace.connect_past_proxy() as connection:
        job = sql.Identifier(ctx.workspace.schema, "job")
        connection.execute(sql.SQL("LOCK TABLE {} IN EXCLUSIVE MODE").format(job))
        time.sleep(seconds)
        connection.rollback()


@scenario("shared-looks", removes_jobs=True, max_points=4)
def shared_looks(ctx: ScenarioContext) -> Iterator[None]:
    """Remote workers never reclaim, and do not reduce the polling of other workers; a duty is not
    postponed when the clock steps back."""
    yield
    ctx.run(duties.take_duty, ctx.queue, 60.0, ctx.owner)
    if not any(_takes_late(ctx, f"other{n}") for n in range(2)):  # one response may be lost
        ctx.report("I2", "stalled-net", "a duty is postponed by an hour: the clock stepped back")
    # Other workers may register at the same moment, but not every time.
    if all(ctx.run(_counts_remote, ctx, number) for number in range(10)):
        ctx.report("I2", "stalled-net", "remote workers count among those that reclaim")


def _takes_late(ctx: ScenarioContext, worker: str) -> bool:
    """Whether a duty that runs every minute is taken although it is due only in an hour."""
    ctx.run(_put_off, ctx.queue)
    return ctx.run(duties.take_duty, ctx.queue, 60.0, worker) is not None


def _counts_remote(ctx: ScenarioContext, number: int) -> Op[bool]:
    """Whether the number of reclaiming workers grows when a remote worker registers."""
    card = ctx.ol.worker().registration_row() | {"id": remote_id(ctx.queue, str(number))}
    yield BEGIN
    before = yield from signs_of_loss()
    yield from worker_ops.register(card)
    after = yield from signs_of_loss()
    return after.fleet > before.fleet


def _put_off(duty: str) -> Op[None]:
    yield Statement("outlast.verify:put_duty_off", {"name": duty})
