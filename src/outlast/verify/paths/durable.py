"""Durable steps, and jobs that are completed with their handlers' own writes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from ...model.lifecycle import Outcome
from ..stage import Stage
from ..workload import STEPS
from .path import path
from .working import until


@path("step", owner=True)
def step(stage: Stage) -> Iterator[None]:
    """What was done and kept is not done again, whoever goes on with the job."""
    (claim,) = stage.claimed_of(stage.work.stepped)
    context = stage.context(claim)
    yield
    for name in STEPS:
        stage.step(context, name)
    stage.finish([(claim, stage.ended(Outcome.SUCCEEDED, claim))])


@path("completing", owner=True)
def completing(stage: Stage) -> Iterator[None]:
    """The handler's row and the job's completion: together or not at all."""
    (claim,) = stage.claimed_of(stage.work.completes)
    stage.ol.store.ready()
    yield
    stage.complete(claim)


@path("worker-durable", most=16)
def work_durably(stage: Stage) -> Iterator[None]:
    """Both in a worker, async and in threads."""
    work = stage.work
    for task in (work.stepped, work.completes, work.completes_async):
        stage.promise(task.using(queue=stage.queue).enqueue().id)
    yield
    asyncio.run(until(stage, lambda counts: counts["succeeded"] >= 3))
