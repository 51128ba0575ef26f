"""Finishing a job, in all outcomes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

from ...model.lifecycle import Outcome
from ..scenario_context import ANY_FINAL_STATE, ScenarioContext
from .claims import make_event
from .scenario import scenario

# An attempt that is killed before its outcome is accepted runs again, and succeeds then.
OUTCOMES: dict[str, tuple[Outcome, tuple[str, ...], dict[str, object]]] = {
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
    outcome: Outcome, states: tuple[str, ...], options: dict[str, object], ctx: ScenarioContext
) -> Iterator[None]:
    (claim,) = ctx.enqueue_and_claim(1, *states, **options)
    yield
    ctx.finish([(claim, ctx.attempt_end(outcome, claim))])


for _name, _about in OUTCOMES.items():
    scenario(f"finish-{_name}", owner=True)(partial(_finish, *_about))


@scenario("finish-followed", owner=True)
def followed(ctx: ScenarioContext) -> Iterator[None]:
    """A success and the jobs that its handler enqueued: together or not at all."""
    (claim,) = ctx.enqueue_and_claim()
    yield
    ctx.finish([(claim, ctx.attempt_end(Outcome.SUCCEEDED, claim, jobs=2))])


@scenario("finish-second", owner=True)
def second_attempt(ctx: ScenarioContext) -> Iterator[None]:
    """A success that was not the first attempt leaves a record."""
    (claim,) = ctx.enqueue_and_claim()
    ctx.finish([(claim, ctx.attempt_end(Outcome.FAILED, claim))])
    while not (claims := ctx.claim()):
        time.sleep(0.005)  # until the retry is due
    ctx.record_begun(claims)
    yield
    ctx.finish([(claims[0], ctx.attempt_end(Outcome.SUCCEEDED, claims[0]))])


@scenario("finish-many", owner=True)
def many(ctx: ScenarioContext) -> Iterator[None]:
    """Outcomes of all kinds and events in one transaction."""
    claims = ctx.enqueue_and_claim(5, *ANY_FINAL_STATE)
    outcomes = [Outcome.SUCCEEDED, Outcome.FAILED, Outcome.PERMANENT, Outcome.RELEASED,
                Outcome.CANCELLED]  # fmt: skip
    yield
    ends = [
        (claim, ctx.attempt_end(outcome, claim, jobs=1))
        for claim, outcome in zip(claims, outcomes, strict=True)
    ]
    ctx.finish(ends, [make_event(claim, n) for n, claim in enumerate(claims)])
