"""Two at once on jobs that wait for each other: nobody is counted twice, and nobody is missed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from ...model.flow import Flow, group
from ...model.job import Claim
from ...model.layout import new_jobs
from ...model.lifecycle import Outcome
from ...model.outcome import decide
from ...ops import operate
from ...ops.enqueue import enqueue
from ...ops.finish import Finished, finish
from ...ops.reclaim import signs_of_loss
from ...ops.statement import Op, Statement
from ..stage import Stage
from ..workload import AT_ONCE
from .meeting import interrupted
from .path import path


@path("flow-redrive-race", only="postgres")
def redrive_race(stage: Stage) -> Iterator[None]:
    """One before a follower is brought back while another's end is being counted off."""
    flow = Flow()
    before = [flow.add(stage.job()) for _ in range(3)]
    flow.add(stage.job(), after=before, when="finished")
    stage.flow(flow, states=("succeeded", "dead"))
    first, second = stage.began(stage.claim(limit=2))
    stage.finish([(first, stage.ended(Outcome.PERMANENT, first))])
    yield
    _meanwhile(stage, second, "tell_followers", partial(operate.redrive, [first.id], "verify"))


@path("flow-last-race", only="postgres")
def last_race(stage: Stage) -> Iterator[None]:
    """The last two before a follower end at once."""
    stage.flow(group(stage.job(), stage.job()).then(stage.job()), states=("succeeded",))
    first, second = stage.began(stage.claim())
    given = decide(second, stage.ended(Outcome.SUCCEEDED, second), AT_ONCE, 0.5)
    yield
    _meanwhile(stage, first, "tell_followers", partial(finish, [given]))


@path("flow-after-race", only="postgres")
def after_race(stage: Stage) -> Iterator[None]:
    """Somebody comes after a job that is being finished."""
    (claim,) = stage.claimed()
    late = new_jobs([stage.job(after=[claim.id])])
    yield
    _meanwhile(stage, claim, "finish", partial(enqueue, late))


def _meanwhile(stage: Stage, claim: Claim, word: str, act: Callable[[], Op[object]]) -> None:
    """Finish a claim; when that has been said, somebody else acts until it has to wait for us. The
    server sees that: a busy machine may take a while."""
    given = [decide(claim, stage.ended(Outcome.SUCCEEDED, claim), AT_ONCE, 0.5)]
    other = stage.ol.store.twin()
    other.run(signs_of_loss)  # connected: it shall come at the very moment
    acts: list[Future[object]] = []
    with ThreadPoolExecutor(1) as thread:

        def meet() -> Statement:
            acts.append(thread.submit(other.run, act))
            return Statement("await_rival")

        finished: Finished = stage.run(interrupted, partial(finish, given), word, meet)
    stage.told(finished)
    acts[0].result()
    other.close()
