"""Circuit breakers: an outage of a dependency opens one, a probe closes it again."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from ...model.breaker import Circuit, OpenBreaker
from ...model.lifecycle import Outcome
from ...model.outcome import AttemptEnd
from ...ops.breaker_report import breakers
from ...ops.breakers import (
    close_breaker,
    close_without_jobs,
    closed_by_probe,
    open_breaker,
    probe_failed,
    take_probe,
)
from ...ops.claim import poll
from ...ops.report import job as one_job
from ..scenario_context import ScenarioContext
from .scenario import scenario
from .whole_workers import work_until

CHECK_INTERVAL_S = 0.5
CLOSE_WITHIN_S = 5.0  # seconds after the last success, or the breaker counts as stuck
HELD_BACK = AttemptEnd(Outcome.RELEASED, quiet=True)


@scenario("breaker")
def outage(ctx: ScenarioContext) -> Iterator[None]:
    """Two workers detect an outage at once and try to probe; one probe fails, the next succeeds."""
    claims = ctx.enqueue_and_claim(2)
    ctx.enqueue(1)
    ours = OpenBreaker(Circuit(ctx.queue, "mark"), f"ours-{ctx.queue}", "ConnectionError")
    yield
    ctx.run(open_breaker, ours, "away", ctx.owner, 0.0)
    theirs = replace(ours, opening=f"theirs-{ctx.queue}")
    _, opened_twice = ctx.run(open_breaker, theirs, "away", "rival", 0.0)
    if opened_twice:
        ctx.report("I4", "poison", "a breaker was opened by two workers")
    ctx.finish([(claim, HELD_BACK) for claim in claims])
    for claim in claims:
        job = ctx.run(one_job, claim.id)
        if (job.attempt, job.failures) != (0, 0) and job.fence == claim.fence:
            ctx.report("I4", "poison", "a job was charged with an outage")
    for failing in (True, False):
        _probe(ctx, failing)
    ctx.run(close_breaker, ctx.queue, "mark", None, ctx.owner)
    ctx.run(close_without_jobs, ours, ctx.owner)


def _probe(ctx: ScenarioContext, failing: bool) -> None:
    due = [one for one in ctx.run(poll).breakers if one.circuit.queue == ctx.queue]
    if not due:
        return  # another worker has closed it
    claims = ctx.run(take_probe, due[0], ctx.owner, ctx.lease, 0.0)
    rivals = ctx.run(take_probe, replace(due[0], probes=due[0].probes + 1), "rival", 1.0, 0.0)
    if claims and rivals:
        ctx.report("I4", "poison", "two workers probe one breaker at once")
    ctx.claims += [*ctx.record_begun(claims), *ctx.record_begun(rivals)]
    for claim in claims:
        if failing:
            ctx.finish([(claim, HELD_BACK._replace(delay=0.01))])
            ctx.run(probe_failed, due[0], claim.claim_key, "still away", 0.0)
        else:
            ctx.finish([(claim, ctx.attempt_end(Outcome.SUCCEEDED, claim))])


@scenario("worker-outage", max_points=24)
def work_through_an_outage(ctx: ScenarioContext) -> Iterator[None]:
    """Jobs with two attempts survive an outage of eight calls, and the breaker closes
    afterwards."""
    task = ctx.work.relies.using(queue=ctx.queue)
    for job in ctx.ol.enqueue(*(task.job() for _ in range(3))):
        ctx.record_promise(job.id)
    yield

    def is_open() -> bool:
        return any(one.queue == ctx.queue for one in ctx.run(breakers))

    succeeded_at = look_at = math.inf

    def is_over(counts: Counter[str]) -> bool:
        """Whether all jobs have ended. Checked rarely: the query blocks the worker's event loop."""
        nonlocal succeeded_at, look_at
        if counts["succeeded"] >= 3 and succeeded_at == math.inf:
            succeeded_at = look_at = time.monotonic()
        if time.monotonic() < look_at:
            return False
        still_open = is_open()
        look_at = time.monotonic() + CHECK_INTERVAL_S
        return not still_open

    asyncio.run(work_until(ctx, is_over))
    if is_open():
        if time.monotonic() - succeeded_at > CLOSE_WITHIN_S:  # the network may be slow
            ctx.report("I2", "unstarted", "a breaker stays open although all of its jobs succeeded")
    elif not ctx.run(closed_by_probe, Circuit(ctx.queue, "relies")):
        ctx.report("I2", "unstarted", "a probe succeeded and closed nothing")
