"""Actions of operators: cancel, redrive, reclaim, purge, drain, pause and resume."""

from __future__ import annotations

from collections.abc import Iterator

from ...model.lifecycle import Outcome
from ...ops import workers as worker_ops
from ...ops.bulk import purge_some
from ...ops.cancel_requests import apply_cancel_requests
from ...ops.workers import deregister
from ..scenario_context import ANY_FINAL_STATE, ScenarioContext
from .scenario import scenario


@scenario("cancel-queued")
def cancel_queued(ctx: ScenarioContext) -> Iterator[None]:
    (job,) = ctx.enqueue(1, "succeeded", "cancelled")
    yield
    ctx.ol.cancel(job.id, "verify")
    ctx.record_promise(job.id, "cancelled")
    ctx.forbid_claim(job.id)


@scenario("cancel-running")
def cancel_running(ctx: ScenarioContext) -> Iterator[None]:
    """Cancel a running job whose owner is never notified; the worker that reclaims it ends it."""
    (claim,) = ctx.enqueue_and_claim(1, "succeeded", "cancelled")
    yield
    ctx.ol.cancel(claim.id, "verify")
    ctx.record_promise(claim.id, "cancelled")


@scenario("cancel-transaction", uses_caller_transaction=True)
def cancel_in_callers_transaction(ctx: ScenarioContext) -> Iterator[None]:
    """Cancel a queued and a running job; any worker applies the request for the running one."""
    (claim,) = ctx.enqueue_and_claim(1, "succeeded", "cancelled")
    (job,) = ctx.enqueue(1, "succeeded", "cancelled")
    with ctx.workspace.connect() as connection:
        yield
        ctx.ol.cancel(job.id, "verify", conn=connection)
        ctx.ol.cancel(claim.id, "verify", conn=connection)
        connection.commit()
        ctx.record_promise(job.id, "cancelled")
        ctx.forbid_claim(job.id)
    ctx.run(apply_cancel_requests)
    ctx.record_promise(claim.id, "cancelled")


@scenario("redrive-dead")
def redrive_dead(ctx: ScenarioContext) -> Iterator[None]:
    (claim,) = ctx.enqueue_and_claim(1, "dead", "succeeded")
    ctx.finish([(claim, ctx.attempt_end(Outcome.PERMANENT, claim))])
    yield
    ctx.ol.retry(claim.id)
    ctx.record_promise(claim.id, "succeeded")


@scenario("redrive-cancelled")
def redrive_cancelled(ctx: ScenarioContext) -> Iterator[None]:
    (job,) = ctx.enqueue(1, "cancelled", "succeeded")
    ctx.ol.cancel(job.id)
    yield
    ctx.ol.retry(job.id)
    ctx.record_promise(job.id, "succeeded")


@scenario("redrive-all")
def redrive_all(ctx: ScenarioContext) -> Iterator[None]:
    claims = ctx.enqueue_and_claim(3, "dead", "succeeded")
    ctx.finish([(claim, ctx.attempt_end(Outcome.PERMANENT, claim)) for claim in claims])
    yield
    ctx.ol.retry_all(queue=ctx.queue)
    for claim in claims:
        ctx.record_promise(claim.id, "succeeded")


@redrive_all.on_retry
def finish_redrive(ctx: ScenarioContext) -> Iterator[str]:
    """Repeat an interrupted redrive."""
    ctx.ol.retry_all(queue=ctx.queue)
    if left := ctx.ol.jobs(queue=ctx.queue, state="dead"):
        yield f"{len(left)} jobs are still dead after a redrive"


@scenario("reclaim-forced")
def take_away(ctx: ScenarioContext) -> Iterator[None]:
    """Reclaim a job from a live owner, whose later outcome is refused."""
    claims = ctx.enqueue_and_claim(2)
    yield
    for claim in claims:
        ctx.ol.reclaim(claim.id)
    ends = [(claim, ctx.attempt_end(Outcome.SUCCEEDED, claim, record=False)) for claim in claims]
    if ctx.finish(ends).accepted:
        ctx.report("I4", "zombie", "a released job was finished by its old owner")


@scenario("purge")
def purge(ctx: ScenarioContext) -> Iterator[None]:
    """Purge jobs with all dependent rows."""
    task = ctx.work.mark.using(queue=ctx.queue)
    ctx.ol.enqueue(*[task.job() for _ in range(2)])
    claims = ctx.record_begun(ctx.claim())
    ctx.finish([(claim, ctx.attempt_end(Outcome.PERMANENT, claim)) for claim in claims])
    yield
    ctx.ol.purge(queue=ctx.queue)


@scenario("purge-changed")
def purge_changed(ctx: ScenarioContext) -> Iterator[None]:
    """A job that was dead when counted, and has succeeded since, is not purged."""
    (claim,) = ctx.enqueue_and_claim(1, "succeeded")
    ctx.finish([(claim, ctx.attempt_end(Outcome.PERMANENT, claim))])
    ctx.ol.retry(claim.id)
    (again,) = ctx.record_begun(ctx.claim())
    ctx.finish([(again, ctx.attempt_end(Outcome.SUCCEEDED, again))])
    yield
    ctx.run(purge_some, [claim.id], "dead", 0.0, "verify", {})


@scenario("change-jobs")
def change_jobs(ctx: ScenarioContext) -> Iterator[None]:
    """Reschedule, prioritize and move jobs that have not started."""
    ctx.enqueue(2)
    ctx.enqueue(1, delay=0.2)
    yield
    ctx.ol.reschedule_all(queue=ctx.queue, delay=0.001)
    ctx.ol.prioritize_all(5, queue=ctx.queue)
    ctx.ol.move_all(f"{ctx.queue}-moved", queue=ctx.queue)


@change_jobs.on_retry
def finish_change(ctx: ScenarioContext) -> Iterator[str]:
    """Repeat an interrupted change."""
    for state in ("ready", "scheduled"):
        ctx.ol.move_all(f"{ctx.queue}-moved", queue=ctx.queue, state=state)
        if left := ctx.ol.jobs(queue=ctx.queue, state=state):
            yield f"{len(left)} jobs are still in the queue that they were moved from"


@scenario("drain")
def drain(ctx: ScenarioContext) -> Iterator[None]:
    """A worker is drained, and undrained."""
    ctx.run(worker_ops.register, ctx.ol.worker(ctx.queue).registration_row() | {"id": ctx.owner})
    yield
    ctx.ol.drain(ctx.owner)
    ctx.ol.drain(ctx.owner, undo=True)
    ctx.run(deregister, ctx.owner)


@scenario("pause")
def pause_and_resume(ctx: ScenarioContext) -> Iterator[None]:
    ctx.enqueue(1, *ANY_FINAL_STATE)
    yield
    ctx.ol.pause(ctx.queue)
    if ctx.record_begun(ctx.claim()):
        ctx.report("I4", "zombie", "a job was claimed from a paused queue")
    ctx.ol.resume(ctx.queue)


@pause_and_resume.on_retry
def resume(ctx: ScenarioContext) -> Iterator[str]:
    ctx.ol.resume(ctx.queue)
    yield from ()
