"""Claims: claim, renew, report events, release."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from ...model.claim import Claim, ClaimEvent
from ...model.lifecycle import Outcome, State
from ...model.outcome import decide
from ...ops import events
from ...ops import workers as worker_ops
from ...ops.claim import ClaimCursor, ClaimRequest, poll
from ...ops.finish_and_claim import finish_and_claim
from ...ops.renew import renew
from ...ops.workers import deregister
from ..scenario_context import ScenarioContext
from ..workload import FAST_RETRY
from .scenario import scenario


@scenario("claim")
def claim(ctx: ScenarioContext) -> Iterator[None]:
    ctx.enqueue(3)
    ctx.enqueue(1, delay=0.001)
    yield
    ctx.run(poll)
    first, *_ = ctx.claim(1)
    ctx.claim(2, cursor=ClaimCursor(first.priority, first.run_at, first.id))
    ctx.claim()


@scenario("claim-longest-due")
def longest_due(ctx: ScenarioContext) -> Iterator[None]:
    """A share of the claims takes the longest due job, of any priority."""
    _flood(ctx)
    yield
    ctx.claim(1, longest_due=True)
    ctx.claim(1)


@longest_due.on_retry
def low_priority_is_next(ctx: ScenarioContext) -> Iterator[str]:
    _flood(ctx)
    (claimed, *_) = ctx.claim(1, longest_due=True) or (None,)
    waiting = [job for job in ctx.ol.jobs(queue=ctx.queue) if job.state is State.READY]
    starved = any(job.priority < 0 and job.fence == 0 for job in waiting)
    if claimed is not None and claimed.priority > 0 and starved:
        yield "a claim for the longest due job took one of high priority that became due later"


def _flood(ctx: ScenarioContext) -> None:
    ctx.enqueue(2, priority=-10, at=datetime.now(UTC) - timedelta(hours=1))
    ctx.enqueue(4, priority=10)


@scenario("renew", owner=True)
def hold_on(ctx: ScenarioContext) -> Iterator[None]:
    claims = ctx.enqueue_and_claim(2)
    yield
    held = {claim.id: claim.fence for claim in claims}
    ctx.run(renew, ctx.owner, held, ctx.lease)
    ctx.run(renew, ctx.owner, held, ctx.lease)


@scenario("report", owner=True)
def report(ctx: ScenarioContext) -> Iterator[None]:
    """Progress and logs, stored only while the claim holds."""
    claims = ctx.enqueue_and_claim(2)
    yield
    ctx.finish([], [make_event(claim, n) for n, claim in enumerate(claims)])
    ctx.finish([], [make_event(claims[0], 2)])
    ctx.run(events.assign_positions)
    ctx.run(events.assign_positions)


def make_event(claim: Claim, n: int) -> ClaimEvent:
    return claim.event_row("progress", json.dumps({"done": n, "fence": claim.fence}), n)


@scenario("release", owner=True)
def release(ctx: ScenarioContext) -> Iterator[None]:
    claims = ctx.enqueue_and_claim(2)
    yield
    ctx.finish([(claim, ctx.attempt_end(Outcome.RELEASED, claim)) for claim in claims])


@scenario("turn", owner=True)
def give_and_take(ctx: ScenarioContext) -> Iterator[None]:
    """Successes are finished and new jobs claimed in one round trip: from the head of the queue,
    and from the cursor."""
    claims = ctx.enqueue_and_claim(2)
    ctx.enqueue(2)
    yield
    more = _finish_and_claim(ctx, claims, ClaimRequest(ctx.owner, ctx.queue, 1, ctx.lease))
    cursor = ClaimCursor(more[0].priority, more[0].run_at, more[0].id) if more else None
    on = ClaimRequest(ctx.owner, ctx.queue, 5, ctx.lease, promote=False, cursor=cursor)
    _finish_and_claim(ctx, more, on)


def _finish_and_claim(
    ctx: ScenarioContext, claims: Sequence[Claim], request: ClaimRequest
) -> list[Claim]:
    ends = [ctx.attempt_end(Outcome.SUCCEEDED, claim) for claim in claims]
    given = [decide(c, e, FAST_RETRY, 0.5) for c, e in zip(claims, ends, strict=True)]
    finished, more = ctx.run(finish_and_claim, given, request)
    ctx.record_answers(finished)
    return ctx.record_begun(more)


@scenario("arrive")
def arrive(ctx: ScenarioContext) -> Iterator[None]:
    card = ctx.ol.worker(ctx.queue).registration_row()
    yield
    ctx.run(worker_ops.register, card)
    ctx.run(worker_ops.heartbeat, card["id"], 0, "working")
    ctx.run(worker_ops.report_trouble, card["id"], "cannot report outcomes")
    ctx.run(deregister, card["id"])


@scenario("leave", owner=True)
def go(ctx: ScenarioContext) -> Iterator[None]:
    """A worker that leaves releases its jobs."""
    ctx.run(worker_ops.register, ctx.ol.worker(ctx.queue).registration_row() | {"id": ctx.owner})
    ctx.enqueue_and_claim(2)
    yield
    ctx.run(deregister, ctx.owner)
