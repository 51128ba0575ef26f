"""Unique keys, debounce, full queues and quotas: calls that are killed and repeated."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress

from ...model.claim import Claim
from ...model.errors import QueueFull
from ...model.flow_builder import build_jobs
from ...model.ids import new_job_id
from ...model.job import Job
from ...model.lifecycle import QUEUED, State
from ...ops.claim import promote
from ...ops.quotas import count_jobs, enqueue_in_quota, reserve, return_lapsed
from ..scenario_context import ScenarioContext
from .scenario import scenario

KEYS = ("a", "b")
DEBOUNCE_S, DUE_WITHIN_S = 0.02, 20.0
MOST_WAITING = 2


@scenario("unique-waiting")
def waiting(ctx: ScenarioContext) -> Iterator[None]:
    """While one job of each key runs, calls enqueue one more of each."""
    _call_unique(ctx)
    ctx.record_begun(ctx.claim())
    yield
    _call_unique(ctx)
    _call_unique(ctx)


@waiting.on_retry
def call_again(ctx: ScenarioContext) -> Iterator[str]:
    _call_unique(ctx)
    keys = [str(job.key) for job in _not_started(ctx)]
    if len(keys) > len(set(keys)):
        yield f"at most one job of each key waits, not those of {sorted(keys)}"
    if not _others_claimed(ctx, len(KEYS)) and (found := _waiting_keys(ctx)) != set(KEYS):
        yield f"a job of each key waits, not only those of {sorted(found)}"


def _call_unique(ctx: ScenarioContext) -> None:
    task = ctx.work.mark.using(queue=ctx.queue, unique="waiting")
    for job in ctx.ol.enqueue(*[task.using(key=key).job() for key in KEYS]):
        ctx.record_promise(job.id)


def _not_started(ctx: ScenarioContext) -> list[Job]:
    """Jobs that were never claimed: a reclaimed job may wait beside a newer one."""
    jobs = ctx.ol.jobs(queue=ctx.queue)
    return [job for job in jobs if job.state in QUEUED and job.fence == 0]


def _waiting_keys(ctx: ScenarioContext) -> set[str]:
    """Keys of queued jobs, including reclaimed ones."""
    return {str(job.key) for job in ctx.ol.jobs(queue=ctx.queue) if job.state in QUEUED}


def _others_claimed(ctx: ScenarioContext, begun: int) -> bool:
    """Whether a worker of another scenario, which serves all queues, has claimed jobs of this
    one."""
    return sum(job.fence > 0 for job in ctx.ol.jobs(queue=ctx.queue)) > begun


@scenario("debounce")
def debounced(ctx: ScenarioContext) -> Iterator[None]:
    """A call replaces the arguments of a queued job, but not those of a running job."""
    _call_debounced(ctx, 0.001, "a")
    ctx.record_begun(_claim_due(ctx))
    _call_debounced(ctx, 0.001, "b")
    yield
    _call_debounced(ctx, 0.002, *KEYS)


@debounced.on_retry
def last_call(ctx: ScenarioContext) -> Iterator[str]:
    _call_debounced(ctx, 0.003, *KEYS)
    found = [(str(job.key), job.args["seconds"]) for job in _not_started(ctx)]
    if len(found) > len({key for key, _ in found}) or any(args != 0.003 for _, args in found):
        yield f"one job of each key waits with the last call's arguments, not {sorted(found)}"
    if not _others_claimed(ctx, 1):
        running = [job for job in ctx.ol.jobs(queue=ctx.queue) if job.state is State.RUNNING]
        if any(job.args["seconds"] != 0.001 for job in running):
            yield "the arguments of a running job were replaced"


def _call_debounced(ctx: ScenarioContext, seconds: float, *keys: str) -> None:
    task = ctx.work.naps.using(queue=ctx.queue, debounce=DEBOUNCE_S, max_wait=10 * DEBOUNCE_S)
    for job in ctx.ol.enqueue(*[task.using(key=key).job(seconds) for key in keys]):
        ctx.record_promise(job.id)


def _claim_due(ctx: ScenarioContext) -> list[Claim]:
    """The claim of a debounced job, as soon as it is due."""
    until = time.monotonic() + DUE_WITHIN_S
    while time.monotonic() < until:
        ctx.run(promote)
        if claims := ctx.claim():
            return claims
        time.sleep(DEBOUNCE_S)
    raise AssertionError("a debounced job did not become due")


@scenario("queue-full")
def full(ctx: ScenarioContext) -> Iterator[None]:
    """A bounded queue accepts jobs up to its limit, even if a process was killed with reserved
    room."""
    ctx.ol.limit(ctx.queue, most_waiting=MOST_WAITING, overflow="refuse")
    yield
    _fill(ctx)


@full.on_retry
def fill_up(ctx: ScenarioContext) -> Iterator[str]:
    _fill(ctx)
    if _others_claimed(ctx, 0):
        return
    if (number := len(_not_started(ctx))) != MOST_WAITING:
        yield f"{number} jobs are ready in a queue for {MOST_WAITING}"


@scenario("queue-drops")
def drop(ctx: ScenarioContext) -> Iterator[None]:
    """A full queue drops its oldest jobs for new ones, and then new ones."""
    ctx.ol.limit(ctx.queue, most_waiting=MOST_WAITING, overflow="drop_oldest")
    _enqueue_too_many(ctx)
    yield
    _enqueue_too_many(ctx)
    ctx.ol.limit(ctx.queue, overflow="drop_new")
    _enqueue_too_many(ctx)


@drop.on_retry
def drop_again(ctx: ScenarioContext) -> Iterator[str]:
    _enqueue_too_many(ctx)
    if (number := len(_not_started(ctx))) > MOST_WAITING:
        yield f"{number} jobs are ready in a queue for {MOST_WAITING}"


def _enqueue_too_many(ctx: ScenarioContext) -> None:
    ctx.ol._refresh_bounds()
    ctx.enqueue(MOST_WAITING + 1, "succeeded", "cancelled")


def _fill(ctx: ScenarioContext) -> None:
    ctx.ol._refresh_bounds()
    with suppress(QueueFull):
        for _ in range(MOST_WAITING + 1):
            ctx.record_promise(ctx.work.mark.using(queue=ctx.queue).enqueue().id)


@scenario("quota")
def counted(ctx: ScenarioContext) -> Iterator[None]:
    """A quota counts exactly the inserted jobs, whatever process was killed in between."""
    ctx.ol.limit(ctx.queue, quota="1000/d")
    yield
    ctx.enqueue(2)
    _enqueue_reserved(ctx)
    ctx.run(return_lapsed, 0.0)


@counted.on_retry
def count_again(ctx: ScenarioContext) -> Iterator[str]:
    ctx.ol._refresh_bounds()
    ctx.enqueue(1)
    ctx.run(return_lapsed, 0.0)
    (used,) = (one.quota_used for one in ctx.ol.limits() if one.queue == ctx.queue)
    if used != (number := len(ctx.ol.jobs(queue=ctx.queue))):
        yield f"a quota counts {used} jobs, but there are {number}"


def _enqueue_reserved(ctx: ScenarioContext) -> None:
    """Enqueue as in a caller's transaction: two jobs and then one, each with two reserved."""
    for number in (2, 1):
        jobs = build_jobs([ctx.work.mark.using(queue=ctx.queue).job() for _ in range(number)])
        reservation = new_job_id()
        ctx.run(reserve, count_jobs([(ctx.queue, None)] * 2, {ctx.queue}), reservation)
        for job in ctx.run(enqueue_in_quota, jobs, [], {ctx.queue}, reservation):
            ctx.record_promise(job.id)
