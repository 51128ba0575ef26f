"""A job in hand: claimed, held on to, reported on, put back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from ...model.job import Claim
from ...model.lifecycle import Outcome
from ...model.outcome import decide
from ...ops import duties, events
from ...ops.claim import Place, Wanted, look
from ...ops.finish import turn
from ...ops.leave import leave
from ...ops.renew import renew
from ..stage import Stage
from ..workload import AT_ONCE
from .path import path


@path("claim")
def claim(stage: Stage) -> Iterator[None]:
    stage.enqueued(3)
    stage.enqueued(1, delay=0.001)
    yield
    stage.run(look)
    first, *_ = stage.claim(1)
    stage.claim(2, place=Place(first.priority, first.run_at, first.id))
    stage.claim()


@path("renew", owner=True)
def hold_on(stage: Stage) -> Iterator[None]:
    claims = stage.claimed(2)
    yield
    held = {claim.id: claim.fence for claim in claims}
    stage.run(renew, stage.owner, held, stage.lease)
    stage.run(renew, stage.owner, held, stage.lease)


@path("report", owner=True)
def report(stage: Stage) -> Iterator[None]:
    """Progress and logs, kept only while the claim holds."""
    claims = stage.claimed(2)
    yield
    stage.finish([], [event(claim, n) for n, claim in enumerate(claims)])
    stage.finish([], [event(claims[0], 2)])
    stage.run(events.place)
    stage.run(events.place)


def event(claim: Claim, n: int) -> dict[str, object]:
    data = json.dumps({"done": n, "fence": claim.fence})
    return {"job": claim.id, **claim.guard, "kind": "progress", "data": data, "n": n}


@path("release", owner=True)
def release(stage: Stage) -> Iterator[None]:
    claims = stage.claimed(2)
    yield
    stage.finish([(claim, stage.ended(Outcome.RELEASED, claim)) for claim in claims])


@path("turn", owner=True)
def give_and_take(stage: Stage) -> Iterator[None]:
    """Successes are given back and new jobs taken, in one round trip: from the head of the queue,
    and on from there."""
    claims = stage.claimed(2)
    stage.enqueued(2)
    yield
    more = _turn(stage, claims, Wanted(stage.owner, stage.queue, 1, stage.lease))
    place = Place(more[0].priority, more[0].run_at, more[0].id) if more else None
    on = Wanted(stage.owner, stage.queue, 5, stage.lease, promote=False, place=place)
    _turn(stage, more, on)


def _turn(stage: Stage, claims: Sequence[Claim], wanted: Wanted) -> list[Claim]:
    ends = [stage.ended(Outcome.SUCCEEDED, claim) for claim in claims]
    given = [decide(c, e, AT_ONCE, 0.5) for c, e in zip(claims, ends, strict=True)]
    finished, more = stage.run(turn, given, wanted)
    stage.told(finished)
    return stage.began(more)


@path("arrive")
def arrive(stage: Stage) -> Iterator[None]:
    card = stage.ol.worker(stage.queue).card()
    yield
    stage.run(duties.arrive, card)
    stage.run(duties.live, card["id"], 0, "working")
    stage.run(duties.tell_trouble, card["id"], "cannot hand in outcomes")
    stage.run(leave, card["id"])


@path("leave", owner=True)
def go(stage: Stage) -> Iterator[None]:
    """Whoever goes puts back what it holds."""
    stage.run(duties.arrive, stage.ol.worker(stage.queue).card() | {"id": stage.owner})
    stage.claimed(2)
    yield
    stage.run(leave, stage.owner)
