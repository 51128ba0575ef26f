"""Durable steps, and jobs that are completed with their handlers' own writes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from ...model.lifecycle import Outcome
from ..scenario_context import ScenarioContext
from ..workload import STEP_NAMES
from .scenario import scenario
from .whole_workers import work_until


@scenario("step", owner=True)
def step(ctx: ScenarioContext) -> Iterator[None]:
    """A stored step does not run again, whichever worker continues the job."""
    (claim,) = ctx.enqueue_and_claim_task(ctx.work.stepped)
    context = ctx.context(claim)
    yield
    for name in STEP_NAMES:
        ctx.step(context, name)
    ctx.finish([(claim, ctx.attempt_end(Outcome.SUCCEEDED, claim))])


@scenario("completing", owner=True)
def completing(ctx: ScenarioContext) -> Iterator[None]:
    """The handler's row and the job's completion commit together or not at all."""
    (claim,) = ctx.enqueue_and_claim_task(ctx.work.completes)
    ctx.ol.store.ready()
    yield
    ctx.complete(claim)


@scenario("worker-durable", max_points=16)
def work_durably(ctx: ScenarioContext) -> Iterator[None]:
    """Steps and completions in a worker, async and in threads."""
    work = ctx.work
    for task in (work.stepped, work.completes, work.completes_async):
        ctx.record_promise(task.using(queue=ctx.queue).enqueue().id)
    yield
    asyncio.run(work_until(ctx, lambda counts: counts["succeeded"] >= 3))
