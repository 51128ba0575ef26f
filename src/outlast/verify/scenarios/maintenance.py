"""Maintenance duties: reclaim, expire, promote and prune, and the turns of workers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

from ...model.lifecycle import Outcome
from ...ops import archive, duties, retention, statistics
from ...ops import workers as worker_ops
from ...ops.archive import ArchiveCursor
from ...ops.claim import promote
from ...ops.duties import DutyTally
from ...ops.operation import Op, Rows, Statement
from ...ops.reclaim import Refusal, reclaim, record_refusals, signs_of_loss
from ...ops.retention import prune_queue
from ..scenario_context import ScenarioContext
from .claims import make_event
from .scenario import scenario

EXPIRED_AFTER_S = 0.003  # longer than the expiries of the scenario
HOUR_S = 3600.0
DUTY_FREE_WITHIN_S = 5.0  # seconds within which a duty must be free again


@scenario("reclaim")
def take_back(ctx: ScenarioContext) -> Iterator[None]:
    """Reclaim a lost job that runs again, one above the crash limit, and a cancelled one."""
    ctx.enqueue()
    ctx.enqueue(1, "dead", max_crashes=1)
    (unwanted,) = ctx.enqueue(1, "cancelled")
    ctx.record_begun(ctx.claim(lease=0.001))
    ctx.ol.cancel(unwanted.id)
    time.sleep(EXPIRED_AFTER_S)
    yield
    ctx.run(signs_of_loss)
    ctx.run(reclaim)


@scenario("expire")
def expire(ctx: ScenarioContext) -> Iterator[None]:
    """An expired job is not claimed, even before the duty ends it."""
    for job in ctx.enqueue(2, "cancelled", expires=0.001):
        ctx.forbid_claim(job.id)
    time.sleep(EXPIRED_AFTER_S)
    yield
    ctx.record_begun(ctx.claim())
    ctx.run(duties.expire)


@scenario("promote")
def make_ready(ctx: ScenarioContext) -> Iterator[None]:
    ctx.enqueue(2, delay=0.001)
    time.sleep(EXPIRED_AFTER_S)
    yield
    ctx.run(promote)


@scenario("prune", removes_jobs=True, max_points=8)
def prune(ctx: ScenarioContext) -> Iterator[None]:
    """Ended jobs are removed with all dependent rows."""
    task = ctx.work.mark.using(queue=ctx.queue)
    ctx.ol.enqueue(*[task.job() for _ in range(3)])
    claims = ctx.record_begun(ctx.claim())
    events = [make_event(claim, n) for n, claim in enumerate(claims)]
    ctx.finish([(claim, ctx.attempt_end(Outcome.CANCELLED, claim)) for claim in claims], events)
    ctx.run(worker_ops.register, ctx.ol.worker().registration_row() | {"lease": 0.001})
    _not_to_be_pruned(ctx)
    ctx.run(record_refusals, [Refusal(*claims[0].claim_key, "succeeded")])
    time.sleep(EXPIRED_AFTER_S)
    yield
    ctx.run(retention.prune, "cancelled", 0.0, 2)
    ctx.run(retention.prune, "cancelled", 0.0, 2)
    ctx.run(retention.prune, "succeeded", HOUR_S, 100)
    ctx.run(retention.prune_workers, 0.0)
    ctx.run(retention.prune_incidents, 0.0, 100)


@scenario("prune-unique", removes_jobs=True, max_points=8)
def prune_unique(ctx: ScenarioContext) -> Iterator[None]:
    """Jobs are removed with the unique keys that they hold."""
    task = ctx.work.mark.using(queue=ctx.queue, unique="active")
    ctx.ol.enqueue(*[task.using(key=f"{ctx.queue}-{n}").job() for n in range(3)])
    claims = ctx.record_begun(ctx.claim())
    ctx.finish([(claim, ctx.attempt_end(Outcome.CANCELLED, claim)) for claim in claims])
    time.sleep(EXPIRED_AFTER_S)
    yield
    ctx.run(retention.prune, "cancelled", 0.0, 2)
    ctx.run(retention.prune, "cancelled", 0.0, 2)


@scenario("prune-queue", removes_jobs=True, max_points=8)
def prune_one_queue(ctx: ScenarioContext) -> Iterator[None]:
    """Prune a queue without retention, beside queues with one."""
    task = ctx.work.mark.using(queue=ctx.queue)
    ctx.ol.enqueue(*[task.job() for _ in range(3)])
    claims = ctx.record_begun(ctx.claim())
    ctx.finish([(claim, ctx.attempt_end(Outcome.CANCELLED, claim)) for claim in claims])
    time.sleep(EXPIRED_AFTER_S)
    yield
    ctx.ol.keep(ctx.queue, 0.0)
    _, since, _ = ctx.run(prune_queue, ctx.queue, 0.0, 0.0, 2)
    ctx.run(prune_queue, ctx.queue, 0.0, since, 2)
    ctx.ol.keep(ctx.queue, None)


@scenario("archive", removes_jobs=True, max_points=8, only_store="postgres")
def move_to_archive(ctx: ScenarioContext) -> Iterator[None]:
    """Succeeded jobs move to the archive; one returns to the table of jobs, and moves again."""
    claims = ctx.enqueue_and_claim(3, "succeeded")
    ctx.finish([(claim, ctx.attempt_end(Outcome.SUCCEEDED, claim)) for claim in claims])
    ctx.enqueue()
    time.sleep(EXPIRED_AFTER_S)
    yield
    _archive_everything(ctx)
    ctx.run(archive.restore, [claims[0].id])
    _archive_everything(ctx)


@move_to_archive.on_retry
def archived_once(ctx: ScenarioContext) -> Iterator[str]:
    """Wherever the process died, each job is in exactly one table."""
    _archive_everything(ctx)
    for (id,) in ctx.run(in_both_tables):
        yield f"{id} is in both tables, or in none"


def in_both_tables() -> Op[Rows]:
    rows: Rows = yield Statement("outlast.verify:in_both_tables")
    return rows


def _archive_everything(ctx: ScenarioContext) -> None:
    partitions = ctx.ol.store.partitions
    assert partitions is not None
    page = ctx.run(archive.archivable, 0.0, HOUR_S, ArchiveCursor(), 1000)
    for day in sorted(set(page.movable.values())):
        ctx.ol.store.retrying(partial(partitions.create, day))  # the duty would run again
    ctx.run(archive.move, list(page.movable), 0.0, HOUR_S)


def _not_to_be_pruned(ctx: ScenarioContext) -> None:
    """Enqueue jobs that must not be pruned: just ended, dead, running, ready, not due."""
    done, lost, _ = ctx.enqueue_and_claim(3, "succeeded", "dead")
    ctx.finish([(done, ctx.attempt_end(Outcome.SUCCEEDED, done)),
                  (lost, ctx.attempt_end(Outcome.PERMANENT, lost))])  # fmt: skip
    ctx.enqueue()
    ctx.enqueue(1, delay=0.3)


@scenario("duty")
def duty(ctx: ScenarioContext) -> Iterator[None]:
    yield
    if ctx.run(duties.take_duty, ctx.queue, 0.2, ctx.owner):
        ctx.run(duties.report_duty, ctx.queue, DutyTally(found=1, healed=1))


@duty.on_retry
def take_over(ctx: ScenarioContext) -> Iterator[str]:
    """A worker that took a duty and died delays it by at most one period."""
    until = time.monotonic() + DUTY_FREE_WITHIN_S
    while not ctx.run(duties.take_duty, ctx.queue, 0.2, "successor"):
        if time.monotonic() > until:
            yield "an abandoned duty cannot be taken"
            return
        time.sleep(0.01)


@scenario("checkpoint", only_store="sqlite")
def checkpoint(ctx: ScenarioContext) -> Iterator[None]:
    """The write-ahead log is checkpointed into the database."""
    ctx.enqueue(3)
    yield
    ctx.ol.store.checkpoint()  # type: ignore[attr-defined]
    ctx.enqueue()


@scenario("statistics", removes_jobs=True, max_points=8)
def count_what_happened(ctx: ScenarioContext) -> Iterator[None]:
    """Statistics, interrupted or not, change nothing but counts."""
    done, lost = ctx.enqueue_and_claim(2, "succeeded", "dead")
    ctx.finish([(done, ctx.attempt_end(Outcome.SUCCEEDED, done)),
                  (lost, ctx.attempt_end(Outcome.PERMANENT, lost))])  # fmt: skip
    _, now = ctx.run(statistics.newest_span)
    at = int(now) // statistics.LONG_SPAN_S * statistics.LONG_SPAN_S
    yield
    there = ctx.run(statistics.depths)
    for span in range(at, int(now) + 1, statistics.SPAN_S)[-2:]:
        ctx.run(statistics.count, span, there)
        ctx.run(statistics.count, span)
    ctx.run(statistics.fold, at)
    ctx.run(statistics.read_statistics, statistics.LONG_SPAN_S, at, at + 1)
    ctx.run(statistics.prune_statistics, at, at)
    ctx.run(record_refusals, [Refusal(*done.claim_key, "succeeded")])
