"""Stale claims, which differ from the valid claim in a single fact.

    claimed-again   one owner, two fences: it lost its job and claimed it again
    split-history   two owners, one fence: a failover lost the first claim, or a backup was restored

Every write of the stale claim is refused with an error; writes of the valid claim count.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from ...model.claim import Claim
from ...model.errors import ClaimLost
from ...model.lifecycle import Outcome
from ...model.outcome import AttemptEnd, Transition, decide
from ...model.stream import STREAM
from ...model.wait import Wait, WaitKind
from ...ops import offer
from ...ops.claim import ClaimRequest
from ...ops.claim import claim as claim_op
from ...ops.complete import complete
from ...ops.finish import Finished, finish, lookup_finished
from ...ops.finish_and_claim import finish_and_claim
from ...ops.operation import Op, Statement
from ...ops.renew import renew
from ...ops.report import history
from ...ops.signals import NewSignal, send_signal
from ...ops.steps import keep, look_up
from ...ops.streams import store_stream
from ...ops.waits import settle_wait
from ..scenario_context import ScenarioContext
from ..workload import FAST_RETRY
from .claims import make_event
from .offers import offer_request, server_id
from .scenario import scenario

JOB_COUNT = 10  # one per kind of write, so that no write hides the effect of another
LONG_LEASE_S = 3600.0  # seconds of a lease that is not reclaimed here


class ClaimPair(NamedTuple):
    """Two claims of one job."""

    stale: Claim
    owner: Claim


@scenario("claimed-again", max_points=24)
def claimed_again(ctx: ScenarioContext) -> Iterator[None]:
    """One owner, two fences."""
    ctx.enqueue(JOB_COUNT)
    before = ctx.claim(JOB_COUNT)
    ctx.finish([(claim, ctx.attempt_end(Outcome.RELEASED, claim)) for claim in before])
    pairs = _pairs(before, ctx.record_begun(ctx.claim(JOB_COUNT)))
    yield
    _try_all(ctx, pairs)


@scenario("split-history", max_points=24)
def split_history(ctx: ScenarioContext) -> Iterator[None]:
    """Two owners, one fence."""
    ctx.enqueue(JOB_COUNT)
    lost = ClaimRequest(f"old-{ctx.queue}", ctx.queue, JOB_COUNT, LONG_LEASE_S)
    before = ctx.run(claim_op, lost)
    ctx.run(_clear_claims, before)
    pairs = _pairs(before, ctx.record_begun(ctx.claim(JOB_COUNT)))
    yield
    _try_all(ctx, pairs)


@scenario("split-offers", max_points=24)
def split_offers(ctx: ScenarioContext) -> Iterator[None]:
    """Two servers under one fence, each of which offers a job to its own remote worker."""
    ctx.enqueue(3)
    other = f"offer-old-{ctx.queue}"
    before = ctx.run(offer.offer, replace(offer_request(ctx, 3), worker=other))
    ctx.run(_clear_claims, before)
    after = ctx.run(offer.offer, offer_request(ctx, 3))
    stale = [c._replace(worker=f"remote-{ctx.queue}", offered_by=other) for c in before]
    owners = [c._replace(worker=ctx.owner, offered_by=server_id(ctx)) for c in after]
    renewed, ended, late = _pairs(stale, owners)
    yield
    for pair in (renewed, ended):
        if ctx.run(offer.hold, [pair.stale], ctx.lease).cancelling:
            _report(ctx, pair, "accepted an offer")
    ctx.run(offer.hold, [late.owner], ctx.lease)
    events = [{**make_event(claim, 99), "attempt": 1} for claim in (late.stale, late.owner)]
    if ctx.run(offer.record_late, events[:1]):
        _report(ctx, late, "stored an event that came late")
    ctx.run(offer.record_late, events[1:])
    if ctx.run(offer.stored_events, [(late.stale, 99)]):
        _report(ctx, late, "got the other claim's event acknowledged as its own")
    _refused(ctx, ended, ctx.run(finish, [_success(ctx, ended.stale)]), "finish")


def _clear_claims(claims: Sequence[Claim]) -> Op[None]:
    yield Statement(
        "outlast.verify:forget_claims", {"ids": json.dumps([claim.id for claim in claims])}
    )


def _pairs(stale: Sequence[Claim], owners: Sequence[Claim]) -> list[ClaimPair]:
    by_id = {claim.id: claim for claim in owners}
    return [ClaimPair(claim, by_id[claim.id]) for claim in stale if claim.id in by_id]


def _try_all(ctx: ScenarioContext, pairs: Sequence[ClaimPair]) -> None:
    """Try every kind of write, each by its own stale claim; then the owners end their jobs."""
    if len(pairs) < JOB_COUNT:
        return  # another worker claimed one: there are no two claims to compare
    failed, quick, spoke, stepped, renewed, completed, again, both, waited, streamed = pairs
    _refused(ctx, failed, ctx.run(finish, [_failure(ctx, failed.stale)]), "failure")
    _refused(ctx, quick, ctx.run(finish_and_claim, [_success(ctx, quick.stale)])[0], "success")
    ctx.run(finish, [], [make_event(spoke.stale, 99)])
    if any(stored.kind == "progress" for stored in ctx.run(history, spoke.stale.id)[1]):
        _report(ctx, spoke, "stored an event")
    _step(ctx, stepped)
    _stream(ctx, streamed)
    _wait(ctx, waited)
    held = {renewed.stale.id: renewed.stale.fence}
    if ctx.run(renew, renewed.stale.worker, held, ctx.lease).kept:
        _report(ctx, renewed, "renewed its lease")
    try:
        ctx.run(complete, _success(ctx, completed.stale))
        _report(ctx, completed, "completed its job with writes of its own")
    except ClaimLost:
        pass
    _in_one_call(ctx, both)
    rest = [failed, quick, spoke, stepped, renewed, completed, again, streamed]
    ends = [ctx.attempt_end(Outcome.SUCCEEDED, pair.owner) for pair in rest]
    ctx.finish([(pair.owner, ended) for pair, ended in zip(rest, ends, strict=True)])
    _refused(ctx, again, ctx.run(lookup_finished, [_success(ctx, again.stale)]), "lost answer")


def _wait(ctx: ScenarioContext, pair: ClaimPair) -> None:
    """A signal is not taken by the stale claim, and its wait does not end the owner's attempt."""
    sent = NewSignal(pair.owner.id, "go", "1", "once")
    ctx.run(send_signal, sent, "verify", lambda *_: None)
    go = Wait("go", WaitKind.SIGNAL, ("go",))
    with suppress(ClaimLost):
        ctx.run(settle_wait, pair.stale, go, None)
        _report(ctx, pair, "took a signal")
    waiting = decide(pair.stale, AttemptEnd(Outcome.WAITED, wait=go), FAST_RETRY, 0.5)
    _refused(ctx, pair, ctx.run(finish, [waiting]), "wait")


def _step(ctx: ScenarioContext, pair: ClaimPair) -> None:
    with suppress(ClaimLost):
        ctx.run(keep, pair.stale, "stale", "1")
    if ctx.run(look_up, pair.stale.id, "stale") is not None:
        _report(ctx, pair, "stored a step")


def _stream(ctx: ScenarioContext, pair: ClaimPair) -> None:
    row = pair.stale.event_row(STREAM, '["stale"]', 0)
    row["first"] = True
    if ctx.run(store_stream, [row], 1000):
        _report(ctx, pair, "stored output")


def _in_one_call(ctx: ScenarioContext, pair: ClaimPair) -> None:
    """Both claims report a success, with one follow-up job each, of which one may exist."""
    late = decide(
        pair.stale, ctx.attempt_end(Outcome.SUCCEEDED, pair.stale, 1, record=False), FAST_RETRY, 0
    )
    good = decide(pair.owner, ctx.attempt_end(Outcome.SUCCEEDED, pair.owner, 1), FAST_RETRY, 0)
    finished = ctx.run(finish, [late, good])
    _refused(ctx, pair, Finished([one for one in finished.accepted if one[0] is late]), "success")
    ctx.record_answers(Finished([one for one in finished.accepted if one[0] is good]))


def _success(ctx: ScenarioContext, claim: Claim) -> Transition:
    return decide(claim, ctx.attempt_end(Outcome.SUCCEEDED, claim, record=False), FAST_RETRY, 0.5)


def _failure(ctx: ScenarioContext, claim: Claim) -> Transition:
    return decide(claim, ctx.attempt_end(Outcome.FAILED, claim), FAST_RETRY, 0.5)


def _refused(ctx: ScenarioContext, pair: ClaimPair, finished: Finished, what: str) -> None:
    if finished.accepted:
        _report(ctx, pair, f"got its {what} acknowledged")


def _report(ctx: ScenarioContext, pair: ClaimPair, message: str) -> None:
    stale, owner = pair
    whose = f"{stale.worker} under claim {stale.fence}, {owner.worker} under {owner.fence}"
    ctx.report("I3", "zombie", f"job {stale.id}: a stale claim {message} ({whose})")
