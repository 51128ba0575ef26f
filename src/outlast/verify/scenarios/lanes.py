"""Limited queues: claims by lanes, tokens, new and changed limits, paused and closed lanes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

from ...model.claim import Claim
from ...model.lane import QueueLimits
from ...model.lifecycle import Outcome, State
from ...ops.claim import ClaimRequest
from ...ops.claim import claim as claim_op
from ...ops.lane_report import LaneSlots, lane_slots
from ...ops.lanes import LaneTurn, slow_down
from ...ops.limits import declare
from ..scenario_context import ScenarioContext
from .scenario import scenario

LANES = ("a", "b")
BURST = 20  # tokens of a lane, which are not refilled meanwhile
CLOSED_S = 0.05
OPEN_WITHIN_S = 20.0


def _claim(
    ctx: ScenarioContext,
    limit: int,
    *,
    adopt: bool = False,
    longest_due: bool = False,
    even: bool = False,
) -> list[Claim]:
    turn = LaneTurn(adopt=adopt, deep=adopt, longest_due=longest_due, even=even)
    claims = ctx.run(claim_op, ClaimRequest(ctx.owner, ctx.queue, limit, ctx.lease, turn=turn))
    ctx.claims += claims
    return ctx.record_begun(claims)


def _enqueue(ctx: ScenarioContext, number: int) -> None:
    for lane in LANES:
        ctx.enqueue(number, lane=lane)


def _slots(ctx: ScenarioContext, lane: str) -> LaneSlots:
    slots = ctx.run(lane_slots, ctx.queue, lane, time.time())
    assert slots is not None
    return slots


def _over_limit(ctx: ScenarioContext, limit: int) -> Iterator[str]:
    jobs = ctx.ol.jobs(queue=ctx.queue, state="running")
    for lane, number in Counter(job.lane for job in jobs).items():
        if number > limit:
            yield f"{number} jobs run in lane {lane}, limit {limit}"


@scenario("lanes-claim")
def claim_by_lanes(ctx: ScenarioContext) -> Iterator[None]:
    """One slot in each lane: a second claim gets none until the first is released."""
    ctx.ol.limit(ctx.queue, running=5, lane_running=1)
    _enqueue(ctx, 2)
    yield
    first = _claim(ctx, 4)
    _claim(ctx, 4)
    ctx.finish([(claim, ctx.attempt_end(Outcome.SUCCEEDED, claim)) for claim in first])
    _claim(ctx, 4, longest_due=True)


@claim_by_lanes.on_retry
def claim_by_lanes_again(ctx: ScenarioContext) -> Iterator[str]:
    _claim(ctx, 4)
    yield from _over_limit(ctx, 1)


@scenario("lanes-even")
def claim_equal_shares(ctx: ScenarioContext) -> Iterator[None]:
    """Lanes without weights, rates and order: after the first turn, a claim is one round trip."""
    ctx.ol.limit(ctx.queue, lane_running=1)
    _enqueue(ctx, 3)
    yield
    first = _claim(ctx, 1)
    _claim(ctx, 4, even=True)
    ctx.finish([(claim, ctx.attempt_end(Outcome.SUCCEEDED, claim)) for claim in first])
    _claim(ctx, 4, even=True)


@claim_equal_shares.on_retry
def claim_equal_shares_again(ctx: ScenarioContext) -> Iterator[str]:
    _claim(ctx, 4, even=True)
    yield from _over_limit(ctx, 1)


@scenario("lanes-ordered")
def claim_in_order(ctx: ScenarioContext) -> Iterator[None]:
    """A released head of an ordered lane blocks its lane."""
    ctx.run(declare, [QueueLimits(ctx.queue, ordered=True)], ctx.owner)
    _enqueue(ctx, 2)
    yield
    first = _claim(ctx, 4)
    ctx.finish([(claim, ctx.attempt_end(Outcome.RELEASED, claim)) for claim in first])
    again = _claim(ctx, 4)
    ctx.finish([(claim, ctx.attempt_end(Outcome.SUCCEEDED, claim)) for claim in again])
    _claim(ctx, 4)


@claim_in_order.on_retry
def claim_in_order_again(ctx: ScenarioContext) -> Iterator[str]:
    _claim(ctx, 4)
    yield from _over_limit(ctx, 1)
    begun: dict[str | None, list[str]] = {}
    for job in sorted(ctx.ol.jobs(queue=ctx.queue), key=lambda job: job.id, reverse=True):
        later = begun.setdefault(job.lane, [])
        if not job.fence and later:
            yield f"{later[-1]} began before {job.id}, which precedes it in its lane"
        if job.fence:
            later.append(job.id)


@scenario("lanes-tokens")
def spend_and_return(ctx: ScenarioContext) -> Iterator[None]:
    """A claim spends a token for each job; a release, unspent, returns it."""
    ctx.ol.limit(ctx.queue, lane_rate="1/h", burst=BURST)
    _enqueue(ctx, 3)
    yield
    first = _claim(ctx, 4)
    ctx.finish([(claim, ctx.attempt_end(Outcome.RELEASED, claim)) for claim in first[:2]])
    ctx.finish([(claim, ctx.attempt_end(Outcome.SUCCEEDED, claim)) for claim in first[2:]])
    _claim(ctx, 2)


@spend_and_return.on_retry
def count_tokens(ctx: ScenarioContext) -> Iterator[str]:
    """Claims and tokens commit together: each counted attempt has cost a token."""
    attempts: Counter[str | None] = Counter()
    for job in ctx.ol.jobs(queue=ctx.queue):
        attempts[job.lane] += job.attempt
    for lane, number in attempts.items():
        tokens = _slots(ctx, str(lane)).tokens
        if tokens is None or round(tokens) != BURST - number:
            yield f"lane {lane} has {tokens} of {BURST} tokens after {number} attempts"
    ctx.ol.limit(ctx.queue, lane_rate=None, burst=None)


@scenario("lanes-first-limit")
def first_limit(ctx: ScenarioContext) -> Iterator[None]:
    """A queue gets its first limit while one job runs and others wait, all without lanes."""
    ctx.enqueue_and_claim(1)
    ctx.enqueue(2)
    yield
    ctx.ol.limit(ctx.queue, lane_running=1, most_waiting=100)
    _claim(ctx, 2, adopt=True)


@first_limit.on_retry
def limit_again(ctx: ScenarioContext) -> Iterator[str]:
    ctx.ol.limit(ctx.queue, lane_running=1, most_waiting=100)
    _claim(ctx, 2, adopt=True)
    running = [job for job in ctx.ol.jobs(queue=ctx.queue) if job.state is State.RUNNING]
    if any(job.lane is None for job in running):
        yield "a job runs in a limited queue without a lane"
    yield from _over_limit(ctx, 1)


@scenario("lanes-pause")
def pause_lane(ctx: ScenarioContext) -> Iterator[None]:
    ctx.ol.limit(ctx.queue, lane_running=1)
    _enqueue(ctx, 1)
    yield
    ctx.ol.pause(ctx.queue, lane="a")
    if any(claim.lane == "a" for claim in _claim(ctx, 2)):
        ctx.report("I4", "zombie", "a job was claimed from a paused lane")
    ctx.ol.resume(ctx.queue, lane="a")


@pause_lane.on_retry
def resume_lane(ctx: ScenarioContext) -> Iterator[str]:
    ctx.ol.resume(ctx.queue, lane="a")
    if _slots(ctx, "a").paused:
        yield "a lane is paused after it was resumed"


@scenario("lanes-move")
def move_to_lane(ctx: ScenarioContext) -> Iterator[None]:
    ctx.ol.limit(ctx.queue, lane_running=1)
    _enqueue(ctx, 2)
    yield
    ctx.ol.move_all(queue=ctx.queue, lane="c")


@move_to_lane.on_retry
def move_again(ctx: ScenarioContext) -> Iterator[str]:
    ctx.ol.move_all(queue=ctx.queue, lane="c")
    if {job.lane for job in ctx.ol.jobs(queue=ctx.queue)} != {"c"}:
        yield "a job is still in the lane that it was moved from"


@scenario("lanes-close")
def close_lane(ctx: ScenarioContext) -> Iterator[None]:
    """A lane is closed because another system limits its calls."""
    ctx.ol.limit(ctx.queue, lane_running=2)
    _enqueue(ctx, 2)
    (slowed, *_) = [claim for claim in _claim(ctx, 2) if claim.lane == "a"]
    yield
    ctx.run(slow_down, slowed, CLOSED_S)
    began = time.monotonic()
    claimed = any(claim.lane == "a" for claim in _claim(ctx, 2))
    if claimed and time.monotonic() - began < CLOSED_S / 2:
        ctx.report("I4", "zombie", "a job was claimed from a closed lane")


@close_lane.on_retry
def opens_by_itself(ctx: ScenarioContext) -> Iterator[str]:
    until = time.monotonic() + OPEN_WITHIN_S
    while _slots(ctx, "a").closed_for > 0:
        if time.monotonic() > until:
            yield f"a lane that was closed for {CLOSED_S} s does not open"
            return
        time.sleep(CLOSED_S)
