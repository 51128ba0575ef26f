"""Jobs that are not due, or must not be claimed, are left alone."""

from __future__ import annotations

from collections.abc import Iterator

from ...model.lifecycle import Outcome
from ...model.outcome import decide
from ...model.retry import Retry
from ...ops.claim import promote
from ...ops.finish import finish
from ..scenario_context import ScenarioContext
from .scenario import scenario

HOUR_S = 3600.0


@scenario("not-yet")
def not_yet(ctx: ScenarioContext) -> Iterator[None]:
    """A job with a delay is neither made ready nor claimed before its time."""
    (job,) = ctx.enqueue(1, "cancelled", delay=HOUR_S)
    ctx.forbid_claim(job.id)
    yield
    ctx.run(promote)
    ctx.record_begun(ctx.claim())


@scenario("back-off")
def back_off(ctx: ScenarioContext) -> Iterator[None]:
    """A failed job is not claimed before its next attempt is due."""
    (claim,) = ctx.enqueue_and_claim(1, "cancelled")
    ctx.forbid_claim(claim.id, claim.fence + 1)
    patient = Retry(base=HOUR_S, cap=HOUR_S)
    yield
    failed = decide(claim, ctx.attempt_end(Outcome.FAILED, claim), patient, 0.5)
    ctx.record_answers(ctx.run(finish, [failed]))
    ctx.run(promote)
    ctx.record_begun(ctx.claim())


@not_yet.on_retry
@back_off.on_retry
def call_off(ctx: ScenarioContext) -> Iterator[str]:
    """Move the due time, instead of waiting for an hour."""
    for job in ctx.ol.jobs(queue=ctx.queue):
        if not job.final:
            ctx.ol.cancel(job.id)
    yield from ()
