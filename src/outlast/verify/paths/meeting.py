"""Two at once on the same job: one of them has it, and both are told so."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

from ...model.errors import StoreBusy
from ...model.job import Claim
from ...model.lifecycle import Outcome
from ...model.outcome import decide
from ...ops.claim import Wanted, claim
from ...ops.finish import finish
from ...ops.reclaim import reclaim
from ...ops.statement import BEGIN, Op, Statement, Together
from ..stage import Stage
from ..workload import AT_ONCE
from .healing import A_MOMENT
from .path import path

T = TypeVar("T")

A_WHILE = 0.15  # seconds that one waits for the other, who should not be waiting at all


@path("claim-race", only="postgres")
def race(stage: Stage) -> Iterator[None]:
    """One has claimed and not yet committed when another claims: a job goes to one of them."""
    stage.enqueued(2)
    other = stage.ol.store.twin()
    ours = Wanted(stage.owner, stage.queue, 5, stage.lease)
    yield
    since = time.monotonic()
    with ThreadPoolExecutor(1) as thread:

        def meanwhile() -> None:
            wait([thread.submit(other.run, claim, replace(ours, worker="rival"))], A_WHILE)

        claims = stage.run(interrupted, partial(_in_transaction, ours), "claim", meanwhile)
    stage.claims += stage.began(claims)
    ends = [(claim, stage.ended(Outcome.SUCCEEDED, claim)) for claim in claims]
    stage.finish_in_time(ends, since)
    other.close()


def _in_transaction(wanted: Wanted) -> Op[list[Claim]]:
    yield BEGIN
    return (yield from claim(wanted))


@path("late-finish")
def late_finish(stage: Stage) -> Iterator[None]:
    """An owner hands its outcome in while its job is being taken back: one of the two counts."""
    stage.enqueued()
    claims = stage.began(stage.claim(lease=0.001))
    ends = [stage.ended(Outcome.SUCCEEDED, claim) for claim in claims]
    given = [decide(c, e, AT_ONCE, 0.5) for c, e in zip(claims, ends, strict=True)]
    other = stage.ol.store.twin()
    other.settings = replace(other.settings, lock_timeout=0.05)
    time.sleep(A_MOMENT)
    yield

    def hand_in() -> None:
        with suppress(StoreBusy):  # it is held by whoever takes it back
            stage.told(other.run(finish, given))

    stage.run(interrupted, reclaim, "lost", hand_in)
    hand_in()
    other.close()


@path("poison")
def suspects(stage: Stage) -> Iterator[None]:
    """Jobs that one more lost worker would end share a process with no other such job."""
    stage.enqueued(3, "succeeded", "dead", max_crashes=2)
    stage.began(stage.claim(lease=0.001))
    time.sleep(A_MOMENT)
    stage.run(reclaim)
    yield
    claims = stage.began(stage.claim())
    if len(claims) > 1:
        stage.saw("I2", "poison", f"{len(claims)} jobs on their last life share a process")
    stage.finish([(claim, stage.ended(Outcome.SUCCEEDED, claim)) for claim in claims])


def interrupted(
    operation: Callable[[], Op[T]], name: str, act: Callable[[], Statement | None]
) -> Op[T]:
    """An operation, and what somebody else does when it has said this; it may then say more."""
    op = operation()
    answer: object = None
    while True:
        try:
            step = op.send(answer)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        answer = yield step
        said = step if isinstance(step, Together) else (step,)
        if any(isinstance(each, Statement) and each.name == name for each in said):
            more = act()
            if more is not None:
                yield more
