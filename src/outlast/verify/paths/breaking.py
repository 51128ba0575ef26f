"""An outage of what a task depends on: its breaker opens, is probed and closes again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

from ...model.breaker import Circuit, OpenBreaker
from ...model.lifecycle import Outcome
from ...model.outcome import Ended
from ...ops.breaker_report import breakers
from ...ops.breakers import (
    close_breaker,
    close_without_jobs,
    open_breaker,
    probe_failed,
    take_probe,
)
from ...ops.claim import look
from ...ops.report import job as one_job
from ..stage import Stage
from .path import path
from .working import until

HELD_BACK = Ended(Outcome.RELEASED, quiet=True)


@path("breaker")
def outage(stage: Stage) -> Iterator[None]:
    """Two find it at once, two want to probe it, one probe fails and the next succeeds."""
    claims = stage.claimed(2)
    stage.enqueued(1)
    ours = OpenBreaker(Circuit(stage.queue, "mark"), f"ours-{stage.queue}", "ConnectionError")
    yield
    stage.run(open_breaker, ours, "away", stage.owner, 0.0)
    theirs = replace(ours, opening=f"theirs-{stage.queue}")
    _, opened_twice = stage.run(open_breaker, theirs, "away", "rival", 0.0)
    if opened_twice:
        stage.saw("I4", "poison", "a breaker was opened by two workers")
    stage.finish([(claim, HELD_BACK) for claim in claims])
    for claim in claims:
        job = stage.run(one_job, claim.id)
        if (job.attempt, job.failures) != (0, 0) and job.fence == claim.fence:
            stage.saw("I4", "poison", "a job was charged with an outage")
    for failing in (True, False):
        _probe(stage, failing)
    stage.run(close_breaker, stage.queue, "mark", None, stage.owner)
    stage.run(close_without_jobs, ours, stage.owner)


def _probe(stage: Stage, failing: bool) -> None:
    due = [one for one in stage.run(look).breakers if one.circuit.queue == stage.queue]
    if not due:
        return  # whoever found it first has closed it
    claims = stage.run(take_probe, due[0], stage.owner, stage.lease, 0.0)
    rivals = stage.run(take_probe, replace(due[0], probes=due[0].probes + 1), "rival", 1.0, 0.0)
    if claims and rivals:
        stage.saw("I4", "poison", "two workers probe one breaker at once")
    stage.claims += [*stage.began(claims), *stage.began(rivals)]
    for claim in claims:
        if failing:
            stage.finish([(claim, HELD_BACK._replace(delay=0.01))])
            stage.run(probe_failed, due[0], claim.hold, "still away", 0.0)
        else:
            stage.finish([(claim, stage.ended(Outcome.SUCCEEDED, claim))])


@path("worker-outage", most=24)
def work_through_an_outage(stage: Stage) -> Iterator[None]:
    """Jobs with two tries outlive an outage of eight calls, and the breaker closes behind it."""
    task = stage.work.relies.using(queue=stage.queue)
    for job in stage.ol.enqueue(*(task.job() for _ in range(3))):
        stage.promise(job.id)
    yield
    asyncio.run(until(stage, lambda counts: counts["succeeded"] >= 3))
    if any(one.queue == stage.queue for one in stage.run(breakers)):
        stage.saw("I2", "unstarted", "a breaker stays open although all of its jobs succeeded")
