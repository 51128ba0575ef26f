"""The one way out of running, in all outcomes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

from ...model.lifecycle import Outcome
from ..stage import SOMEHOW, Stage
from .holding import event
from .path import path

# An attempt that is killed before its outcome is accepted runs again, and succeeds then.
OUTCOMES: dict[str, tuple[Outcome, tuple[str, ...], dict[str, Any]]] = {
    "succeeded": (Outcome.SUCCEEDED, ("succeeded",), {}),
    "failed": (Outcome.FAILED, ("succeeded",), {}),
    "exhausted": (Outcome.FAILED, ("succeeded", "dead"), {"max_attempts": 1}),
    "timed-out": (Outcome.TIMED_OUT, ("succeeded",), {}),
    "permanent": (Outcome.PERMANENT, ("succeeded", "dead"), {}),
    "undecodable": (Outcome.UNDECODABLE, ("succeeded", "dead"), {}),
    "postponed": (Outcome.POSTPONED, ("succeeded",), {}),
    "cancelled": (Outcome.CANCELLED, ("succeeded", "cancelled"), {}),
}


def _finish(
    outcome: Outcome, states: tuple[str, ...], options: dict[str, Any], stage: Stage
) -> Iterator[None]:
    (claim,) = stage.claimed(1, *states, **options)
    yield
    stage.finish([(claim, stage.ended(outcome, claim))])


for _name, _about in OUTCOMES.items():
    path(f"finish-{_name}", owner=True)(partial(_finish, *_about))


@path("finish-followed", owner=True)
def followed(stage: Stage) -> Iterator[None]:
    """A success and the jobs that its handler enqueued: together or not at all."""
    (claim,) = stage.claimed()
    yield
    stage.finish([(claim, stage.ended(Outcome.SUCCEEDED, claim, jobs=2))])


@path("finish-second", owner=True)
def second_attempt(stage: Stage) -> Iterator[None]:
    """A success that was not the first attempt leaves a record."""
    (claim,) = stage.claimed()
    stage.finish([(claim, stage.ended(Outcome.FAILED, claim))])
    while not (claims := stage.claim()):
        time.sleep(0.005)  # until the retry is due
    stage.began(claims)
    yield
    stage.finish([(claims[0], stage.ended(Outcome.SUCCEEDED, claims[0]))])


@path("finish-many", owner=True)
def many(stage: Stage) -> Iterator[None]:
    """Outcomes of all kinds and events in one transaction."""
    claims = stage.claimed(5, *SOMEHOW)
    outcomes = [Outcome.SUCCEEDED, Outcome.FAILED, Outcome.PERMANENT, Outcome.RELEASED,
                Outcome.CANCELLED]  # fmt: skip
    yield
    ends = [
        (claim, stage.ended(outcome, claim, jobs=1))
        for claim, outcome in zip(claims, outcomes, strict=True)
    ]
    stage.finish(ends, [event(claim, n) for n, claim in enumerate(claims)])
