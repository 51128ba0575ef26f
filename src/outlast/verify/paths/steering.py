"""What people do: cancel, redrive, reclaim, purge, drain, pause and resume."""

from __future__ import annotations

from collections.abc import Iterator

from ...model.lifecycle import Outcome
from ...ops import duties
from ...ops.bulk import purge_some
from ...ops.leave import leave
from ..stage import SOMEHOW, Stage
from .path import path


@path("cancel-queued")
def cancel_queued(stage: Stage) -> Iterator[None]:
    (job,) = stage.enqueued(1, "succeeded", "cancelled")
    yield
    stage.ol.cancel(job.id, "verify")
    stage.promise(job.id, "cancelled")
    stage.never(job.id)


@path("cancel-running")
def cancel_running(stage: Stage) -> Iterator[None]:
    """Its owner never hears of it; whoever takes the job back ends it."""
    (claim,) = stage.claimed(1, "succeeded", "cancelled")
    yield
    stage.ol.cancel(claim.id, "verify")
    stage.promise(claim.id, "cancelled")


@path("redrive-dead")
def redrive_dead(stage: Stage) -> Iterator[None]:
    (claim,) = stage.claimed(1, "dead", "succeeded")
    stage.finish([(claim, stage.ended(Outcome.PERMANENT, claim))])
    yield
    stage.ol.retry(claim.id)
    stage.promise(claim.id, "succeeded")


@path("redrive-cancelled")
def redrive_cancelled(stage: Stage) -> Iterator[None]:
    (job,) = stage.enqueued(1, "cancelled", "succeeded")
    stage.ol.cancel(job.id)
    yield
    stage.ol.retry(job.id)
    stage.promise(job.id, "succeeded")


@path("redrive-all")
def redrive_all(stage: Stage) -> Iterator[None]:
    claims = stage.claimed(3, "dead", "succeeded")
    stage.finish([(claim, stage.ended(Outcome.PERMANENT, claim)) for claim in claims])
    yield
    stage.ol.retry_all(queue=stage.queue)
    for claim in claims:
        stage.promise(claim.id, "succeeded")


@redrive_all.again
def finish_redrive(stage: Stage) -> Iterator[str]:
    """One that died midway is simply done again."""
    stage.ol.retry_all(queue=stage.queue)
    if left := stage.ol.jobs(queue=stage.queue, state="dead"):
        yield f"{len(left)} jobs are still dead after a redrive"


@path("reclaim-forced")
def take_away(stage: Stage) -> Iterator[None]:
    """From an owner that lives: its own end of the job counts for nothing then."""
    claims = stage.claimed(2)
    yield
    for claim in claims:
        stage.ol.reclaim(claim.id)
    ends = [(claim, stage.ended(Outcome.SUCCEEDED, claim, tell=False)) for claim in claims]
    if stage.finish(ends).accepted:
        stage.saw("I4", "zombie", "a job that was taken away was finished by its old owner")


@path("purge")
def purge(stage: Stage) -> Iterator[None]:
    """Removed because somebody said so, with all that belongs to them."""
    task = stage.work.mark.using(queue=stage.queue)
    stage.ol.enqueue(*[task.job() for _ in range(2)])
    claims = stage.began(stage.claim())
    stage.finish([(claim, stage.ended(Outcome.PERMANENT, claim)) for claim in claims])
    yield
    stage.ol.purge(queue=stage.queue)


@path("purge-changed")
def purge_changed(stage: Stage) -> Iterator[None]:
    """Dead when it was counted, succeeded when its turn came: it is left alone."""
    (claim,) = stage.claimed(1, "succeeded")
    stage.finish([(claim, stage.ended(Outcome.PERMANENT, claim))])
    stage.ol.retry(claim.id)
    (again,) = stage.began(stage.claim())
    stage.finish([(again, stage.ended(Outcome.SUCCEEDED, again))])
    yield
    stage.run(purge_some, [claim.id], "dead", 0.0, "verify", {})


@path("drain")
def drain(stage: Stage) -> Iterator[None]:
    """A worker is told to claim no more, and that it may."""
    stage.run(duties.arrive, stage.ol.worker(stage.queue).card() | {"id": stage.owner})
    yield
    stage.ol.drain(stage.owner)
    stage.ol.drain(stage.owner, undo=True)
    stage.run(leave, stage.owner)


@path("pause")
def pause_and_resume(stage: Stage) -> Iterator[None]:
    stage.enqueued(1, *SOMEHOW)
    yield
    stage.ol.pause(stage.queue)
    if stage.began(stage.claim()):
        stage.saw("I4", "zombie", "a job was claimed from a paused queue")
    stage.ol.resume(stage.queue)


@pause_and_resume.again
def resume(stage: Stage) -> Iterator[str]:
    stage.ol.resume(stage.queue)
    yield from ()
