"""What is not due yet, or must not be claimed, is left where it is."""

from __future__ import annotations

from collections.abc import Iterator

from ...model.lifecycle import Outcome
from ...model.outcome import decide
from ...model.retry import Retry
from ...ops.claim import promote
from ...ops.finish import finish
from ..stage import Stage
from .path import path

AN_HOUR = 3600.0


@path("not-yet")
def not_yet(stage: Stage) -> Iterator[None]:
    """A job with a delay is neither made ready nor claimed before its time."""
    (job,) = stage.enqueued(1, "cancelled", delay=AN_HOUR)
    stage.never(job.id)
    yield
    stage.run(promote)
    stage.began(stage.claim())


@path("back-off")
def back_off(stage: Stage) -> Iterator[None]:
    """Neither is one that has failed, before its next attempt is due."""
    (claim,) = stage.claimed(1, "cancelled")
    stage.never(claim.id, claim.fence + 1)
    patient = Retry(base=AN_HOUR, cap=AN_HOUR)
    yield
    failed = decide(claim, stage.ended(Outcome.FAILED, claim), patient, 0.5)
    stage.told(stage.run(finish, [failed]))
    stage.run(promote)
    stage.began(stage.claim())


@not_yet.again
@back_off.again
def call_off(stage: Stage) -> Iterator[str]:
    """Nobody wants to wait for an hour."""
    for job in stage.ol.jobs(queue=stage.queue):
        if not job.final:
            stage.ol.cancel(job.id)
    yield from ()
