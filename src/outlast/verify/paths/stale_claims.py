"""Claims that no longer hold, told from the one that does by a single fact.

    claimed-again   one owner, two fences: it lost its job and claimed it again
    split-history   two owners, one fence: a failover lost the first claim, or a backup was restored

Whatever the stale claim writes is refused, and says so; the other one's writes count.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from ...model.errors import ClaimLost
from ...model.job import Claim
from ...model.lifecycle import Outcome
from ...model.outcome import Transition, decide
from ...ops import offer
from ...ops.claim import Wanted
from ...ops.claim import claim as claim_op
from ...ops.complete import complete
from ...ops.finish import Finished, finish, settled, turn
from ...ops.renew import renew
from ...ops.report import history
from ...ops.statement import Op, Statement
from ...ops.steps import keep, look_up
from ..stage import Stage
from ..workload import AT_ONCE
from .holding import event
from .offering import asked, desk
from .path import path

JOBS = 8  # one for each kind of write, so that none hides what another one lets through
LONG = 3600.0  # seconds of a lease that nobody takes back here


class Pair(NamedTuple):
    """Two claims of one job."""

    stale: Claim
    owner: Claim


@path("claimed-again", most=24)
def claimed_again(stage: Stage) -> Iterator[None]:
    """One owner, two fences."""
    stage.enqueued(JOBS)
    before = stage.claim(JOBS)
    stage.finish([(claim, stage.ended(Outcome.RELEASED, claim)) for claim in before])
    pairs = _pairs(before, stage.began(stage.claim(JOBS)))
    yield
    _try_all(stage, pairs)


@path("split-history", most=24)
def split_history(stage: Stage) -> Iterator[None]:
    """Two owners, one fence."""
    stage.enqueued(JOBS)
    lost = Wanted(f"old-{stage.queue}", stage.queue, JOBS, LONG)
    before = stage.run(claim_op, lost)
    stage.run(_forget, before)
    pairs = _pairs(before, stage.began(stage.claim(JOBS)))
    yield
    _try_all(stage, pairs)


@path("split-offers", most=24)
def split_offers(stage: Stage) -> Iterator[None]:
    """The same between two servers that offer a job, each to a remote worker of its own."""
    stage.enqueued(3)
    other = f"offer-old-{stage.queue}"
    before = stage.run(offer.offer, replace(asked(stage, 3), worker=other))
    stage.run(_forget, before)
    after = stage.run(offer.offer, asked(stage, 3))
    stale = [c._replace(worker=f"remote-{stage.queue}", offered_by=other) for c in before]
    owners = [c._replace(worker=stage.owner, offered_by=desk(stage)) for c in after]
    renewed, ended, late = _pairs(stale, owners)
    yield
    for pair in (renewed, ended):
        if stage.run(offer.hold, [pair.stale], stage.lease).cancelling:
            _saw(stage, pair, "accepted an offer")
    stage.run(offer.hold, [late.owner], stage.lease)
    said = [{**event(claim, 99), "attempt": 1} for claim in (late.stale, late.owner)]
    if stage.run(offer.record_late, said[:1]):
        _saw(stage, late, "kept an event that came late")
    stage.run(offer.record_late, said[1:])
    if stage.run(offer.kept, [(late.stale, 99)]):
        _saw(stage, late, "was told that the other one's event is its own")
    _refused(stage, ended, stage.run(finish, [_success(stage, ended.stale)]), "finish")


def _forget(claims: Sequence[Claim]) -> Op[None]:
    yield Statement("forget_claims", {"ids": json.dumps([claim.id for claim in claims])})


def _pairs(stale: Sequence[Claim], owners: Sequence[Claim]) -> list[Pair]:
    by_id = {claim.id: claim for claim in owners}
    return [Pair(claim, by_id[claim.id]) for claim in stale if claim.id in by_id]


def _try_all(stage: Stage, pairs: Sequence[Pair]) -> None:
    """Every kind of write, each by a stale claim of its own; then the owners end their jobs."""
    if len(pairs) < JOBS:
        return  # somebody else took one: there are no two claims to compare
    failed, quick, spoke, stepped, renewed, completed, again, both = pairs
    _refused(stage, failed, stage.run(finish, [_failure(stage, failed.stale)]), "failure")
    _refused(stage, quick, stage.run(turn, [_success(stage, quick.stale)])[0], "success")
    stage.run(finish, [], [event(spoke.stale, 99)])
    if any(told.kind == "progress" for told in stage.run(history, spoke.stale.id)[1]):
        _saw(stage, spoke, "kept an event")
    _step(stage, stepped)
    held = {renewed.stale.id: renewed.stale.fence}
    if stage.run(renew, renewed.stale.worker, held, stage.lease).kept:
        _saw(stage, renewed, "renewed its lease")
    try:
        stage.run(complete, _success(stage, completed.stale))
        _saw(stage, completed, "completed its job with writes of its own")
    except ClaimLost:
        pass
    _in_one_call(stage, both)
    rest = [failed, quick, spoke, stepped, renewed, completed, again]
    ends = [stage.ended(Outcome.SUCCEEDED, pair.owner) for pair in rest]
    stage.finish([(pair.owner, ended) for pair, ended in zip(rest, ends, strict=True)])
    _refused(stage, again, stage.run(settled, [_success(stage, again.stale)]), "lost answer")


def _step(stage: Stage, pair: Pair) -> None:
    with suppress(ClaimLost):
        stage.run(keep, pair.stale, "stale", "1")
    if stage.run(look_up, pair.stale.id, "stale") is not None:
        _saw(stage, pair, "kept a step")


def _in_one_call(stage: Stage, pair: Pair) -> None:
    """Both claims report a success, with one follow-up job each, of which one may exist."""
    late = decide(pair.stale, stage.ended(Outcome.SUCCEEDED, pair.stale, 1, tell=False), AT_ONCE, 0)
    good = decide(pair.owner, stage.ended(Outcome.SUCCEEDED, pair.owner, 1), AT_ONCE, 0)
    finished = stage.run(finish, [late, good])
    _refused(stage, pair, Finished([one for one in finished.accepted if one[0] is late]), "success")
    stage.told(Finished([one for one in finished.accepted if one[0] is good]))


def _success(stage: Stage, claim: Claim) -> Transition:
    return decide(claim, stage.ended(Outcome.SUCCEEDED, claim, tell=False), AT_ONCE, 0.5)


def _failure(stage: Stage, claim: Claim) -> Transition:
    return decide(claim, stage.ended(Outcome.FAILED, claim), AT_ONCE, 0.5)


def _refused(stage: Stage, pair: Pair, finished: Finished, what: str) -> None:
    if finished.accepted:
        _saw(stage, pair, f"was told that its {what} counts")


def _saw(stage: Stage, pair: Pair, told: str) -> None:
    stale, owner = pair
    whose = f"{stale.worker} under claim {stale.fence}, {owner.worker} under {owner.fence}"
    stage.saw("I3", "zombie", f"job {stale.id}: a stale claim {told} ({whose})")
