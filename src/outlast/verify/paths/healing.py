"""What every worker does for all: reclaim, expire, promote, prune, and take turns in doing so."""

from __future__ import annotations

import time
from collections.abc import Iterator

from ...model.lifecycle import Outcome
from ...ops import duties, statistics
from ...ops.claim import promote
from ...ops.duties import Tally
from ...ops.keep import prune_queue
from ...ops.reclaim import Refusal, reclaim, refusals, signs_of_loss
from ..stage import Stage
from .holding import event
from .path import path

A_MOMENT = 0.003  # seconds: longer than the spans that are meant to be over
AN_HOUR = 3600.0
FOR_EVER = 5.0  # seconds within which a duty must be free again


@path("reclaim")
def take_back(stage: Stage) -> Iterator[None]:
    """One lost claim to run again, one too many, and one that somebody wanted cancelled."""
    stage.enqueued()
    stage.enqueued(1, "dead", max_crashes=1)
    (unwanted,) = stage.enqueued(1, "cancelled")
    stage.began(stage.claim(lease=0.001))
    stage.ol.cancel(unwanted.id)
    time.sleep(A_MOMENT)
    yield
    stage.run(signs_of_loss)
    stage.run(reclaim)


@path("expire")
def expire(stage: Stage) -> Iterator[None]:
    """Past its expiry a job is not claimed, also before anybody has ended it."""
    for job in stage.enqueued(2, "cancelled", expires=0.001):
        stage.never(job.id)
    time.sleep(A_MOMENT)
    yield
    stage.began(stage.claim())
    stage.run(duties.expire)


@path("promote")
def make_ready(stage: Stage) -> Iterator[None]:
    stage.enqueued(2, delay=0.001)
    time.sleep(A_MOMENT)
    yield
    stage.run(promote)


@path("prune", apart=True, most=8)
def prune(stage: Stage) -> Iterator[None]:
    """Ended jobs go with all that belongs to them."""
    task = stage.work.mark.using(queue=stage.queue)
    stage.ol.enqueue(*[task.job() for _ in range(3)])
    claims = stage.began(stage.claim())
    events = [event(claim, n) for n, claim in enumerate(claims)]
    stage.finish([(claim, stage.ended(Outcome.CANCELLED, claim)) for claim in claims], events)
    stage.run(duties.arrive, stage.ol.worker().card() | {"lease": 0.001})
    _not_to_be_pruned(stage)
    stage.run(refusals, [Refusal(*claims[0].hold, "succeeded")])
    time.sleep(A_MOMENT)
    yield
    stage.run(duties.prune, "cancelled", 0.0, 2)
    stage.run(duties.prune, "cancelled", 0.0, 2)
    stage.run(duties.prune, "succeeded", AN_HOUR, 100)
    stage.run(duties.prune_workers, 0.0)
    stage.run(duties.prune_incidents, 0.0, 100)


@path("prune-queue", apart=True, most=8)
def prune_one_queue(stage: Stage) -> Iterator[None]:
    """A queue that keeps nothing, beside others that do."""
    task = stage.work.mark.using(queue=stage.queue)
    stage.ol.enqueue(*[task.job() for _ in range(3)])
    claims = stage.began(stage.claim())
    stage.finish([(claim, stage.ended(Outcome.CANCELLED, claim)) for claim in claims])
    time.sleep(A_MOMENT)
    yield
    stage.ol.keep(stage.queue, 0.0)
    _, since, _ = stage.run(prune_queue, stage.queue, 0.0, 0.0, 2)
    stage.run(prune_queue, stage.queue, 0.0, since, 2)
    stage.ol.keep(stage.queue, None)


def _not_to_be_pruned(stage: Stage) -> None:
    """One that ended just now, one dead, one that runs, one that is ready, one that is not due."""
    done, lost, _ = stage.claimed(3, "succeeded", "dead")
    stage.finish([(done, stage.ended(Outcome.SUCCEEDED, done)),
                  (lost, stage.ended(Outcome.PERMANENT, lost))])  # fmt: skip
    stage.enqueued()
    stage.enqueued(1, delay=0.3)


@path("duty")
def duty(stage: Stage) -> Iterator[None]:
    yield
    if stage.run(duties.take, stage.queue, 0.2, stage.owner):
        stage.run(duties.report, stage.queue, Tally(found=1, healed=1))


@duty.again
def take_over(stage: Stage) -> Iterator[str]:
    """Whoever took a duty and died holds it up for one period and no longer."""
    until = time.monotonic() + FOR_EVER
    while not stage.run(duties.take, stage.queue, 0.2, "successor"):
        if time.monotonic() > until:
            yield "a duty that nobody does cannot be taken"
            return
        time.sleep(0.01)


@path("checkpoint", only="sqlite")
def checkpoint(stage: Stage) -> Iterator[None]:
    """The write-ahead log is copied into the database."""
    stage.enqueued(3)
    yield
    stage.ol.store.checkpoint()  # type: ignore[attr-defined]
    stage.enqueued()


@path("statistics", apart=True, most=8)
def count_what_happened(stage: Stage) -> Iterator[None]:
    """Counting, and being killed at it, changes nothing but counts."""
    done, lost = stage.claimed(2, "succeeded", "dead")
    stage.finish([(done, stage.ended(Outcome.SUCCEEDED, done)),
                  (lost, stage.ended(Outcome.PERMANENT, lost))])  # fmt: skip
    _, now = stage.run(statistics.standing)
    at = int(now) // statistics.LONG_SPAN * statistics.LONG_SPAN
    yield
    there = stage.run(statistics.depths)
    for span in range(at, int(now) + 1, statistics.SPAN)[-2:]:
        stage.run(statistics.count, span, there)
        stage.run(statistics.count, span)
    stage.run(statistics.fold, at)
    stage.run(statistics.lines, statistics.LONG_SPAN, at, at + 1)
    stage.run(statistics.forget, at, at)
    stage.run(refusals, [Refusal(*done.hold, "succeeded")])
