"""Two processes at once on one job: one gets it, and both receive the correct response."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

from ...model.claim import Claim
from ...model.errors import StoreBusy
from ...model.lifecycle import Outcome
from ...model.outcome import decide
from ...ops.claim import ClaimRequest, claim
from ...ops.finish import finish
from ...ops.operation import BEGIN, Op, Pipeline, Statement
from ...ops.reclaim import reclaim
from ..scenario_context import ScenarioContext
from ..workload import FAST_RETRY
from .maintenance import EXPIRED_AFTER_S
from .scenario import scenario

T = TypeVar("T")

MAX_WAIT_S = 0.15  # limit for a wait that should not happen


@scenario("claim-race", only_store="postgres")
def race(ctx: ScenarioContext) -> Iterator[None]:
    """A process claims while the claim of another is not committed: each job has one owner."""
    ctx.enqueue(2)
    other = ctx.ol.store.clone()
    ours = ClaimRequest(ctx.owner, ctx.queue, 5, ctx.lease)
    yield
    since = time.monotonic()
    with ThreadPoolExecutor(1) as thread:

        def meanwhile() -> None:
            wait([thread.submit(other.run, claim, replace(ours, worker="rival"))], MAX_WAIT_S)

        claims = ctx.run(interrupted, partial(_in_transaction, ours), "claim", meanwhile)
    ctx.claims += ctx.record_begun(claims)
    ends = [(claim, ctx.attempt_end(Outcome.SUCCEEDED, claim)) for claim in claims]
    ctx.finish_in_time(ends, since)
    other.close()


def _in_transaction(request: ClaimRequest) -> Op[list[Claim]]:
    yield BEGIN
    return (yield from claim(request))


@scenario("late-finish")
def late_finish(ctx: ScenarioContext) -> Iterator[None]:
    """An owner reports its outcome while its job is being reclaimed: only one of the two counts."""
    ctx.enqueue()
    claims = ctx.record_begun(ctx.claim(lease=0.001))
    ends = [ctx.attempt_end(Outcome.SUCCEEDED, claim) for claim in claims]
    given = [decide(c, e, FAST_RETRY, 0.5) for c, e in zip(claims, ends, strict=True)]
    other = ctx.ol.store.clone()
    other.settings = replace(other.settings, lock_timeout=0.05)
    time.sleep(EXPIRED_AFTER_S)
    yield

    def hand_in() -> None:
        with suppress(StoreBusy):  # locked by the reclaim
            ctx.record_answers(other.run(finish, given))

    ctx.run(interrupted, reclaim, "expired_leases", hand_in)
    hand_in()
    other.close()


@scenario("poison")
def suspects(ctx: ScenarioContext) -> Iterator[None]:
    """Two jobs with one crash left never share a process."""
    ctx.enqueue(3, "succeeded", "dead", max_crashes=2)
    ctx.record_begun(ctx.claim(lease=0.001))
    time.sleep(EXPIRED_AFTER_S)
    ctx.run(reclaim)
    yield
    claims = ctx.record_begun(ctx.claim())
    if len(claims) > 1:
        ctx.report("I2", "poison", f"{len(claims)} jobs with one crash left share a process")
    ctx.finish([(claim, ctx.attempt_end(Outcome.SUCCEEDED, claim)) for claim in claims])


def interrupted(
    operation: Callable[[], Op[T]], name: str, act: Callable[[], Statement | None]
) -> Op[T]:
    """Run an operation, with another action between one of its statements and the next."""
    op = operation()
    answer: object = None
    while True:
        try:
            step = op.send(answer)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        answer = yield step
        statements = step if isinstance(step, Pipeline) else (step,)
        if any(isinstance(each, Statement) and each.name == name for each in statements):
            more = act()
            if more is not None:
                yield more
