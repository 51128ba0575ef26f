"""A job on its way to a remote worker: offered, accepted, withdrawn; and what came too late."""

from __future__ import annotations

from collections.abc import Iterator

from ...model.job import Claim
from ...ops.claim import Place
from ...ops.offer import Asked, hold, offer, record_late, withdraw
from ..stage import Stage
from .holding import event
from .path import path


@path("offer")
def offered(stage: Stage) -> Iterator[None]:
    """A server that dies here has charged nothing."""
    stage.enqueued(3)
    yield
    first, *_ = stage.run(offer, asked(stage, 1))
    stage.run(offer, asked(stage, 1, Place(first.priority, first.run_at, first.id)))
    stage.run(offer, asked(stage, 1))


@path("accept")
def accepted(stage: Stage) -> Iterator[None]:
    """The first renewal, and the next."""
    claims = taken(stage, 2)
    yield
    stage.run(hold, claims, stage.lease)
    stage.run(hold, claims, stage.lease)


@path("withdraw")
def withdrawn(stage: Stage) -> Iterator[None]:
    """What nobody accepted goes back, and what somebody has accepted stays."""
    first, *others = taken(stage, 3)
    yield
    stage.run(hold, [first], stage.lease)
    stage.run(withdraw, desk(stage), [first, *others])


@path("late-events")
def late(stage: Stage) -> Iterator[None]:
    """What a worker that died had said is kept once, however often it is sent."""
    claims = taken(stage, 2)
    said = [event(claim, n) for n, claim in enumerate(claims)]
    yield
    stage.run(record_late, [{**one, "attempt": 1} for one in said])
    stage.run(record_late, [{**one, "attempt": 1} for one in said])


def desk(stage: Stage) -> str:
    return f"offer-{stage.queue}"


def asked(stage: Stage, limit: int, place: Place | None = None) -> Asked:
    tasks = (stage.work.mark.name,)
    return Asked(desk(stage), stage.queue, limit, stage.lease, place=place, tasks=tasks)


def taken(stage: Stage, number: int) -> list[Claim]:
    """Jobs that were offered to the stage's own worker."""
    stage.enqueued(number)
    claims = stage.run(offer, asked(stage, number))
    return [claim._replace(worker=stage.owner, offered_by=desk(stage)) for claim in claims]
