"""Two processes at once on a flow: no prerequisite is counted twice or missed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from ...model.claim import Claim
from ...model.flow import Flow, group
from ...model.flow_builder import build_jobs
from ...model.lifecycle import Outcome
from ...model.outcome import decide
from ...ops import job_actions
from ...ops.enqueue import enqueue
from ...ops.finish import Finished, finish
from ...ops.operation import Op, Statement
from ...ops.reclaim import signs_of_loss
from ..scenario_context import ScenarioContext
from ..workload import FAST_RETRY
from .races import interrupted
from .scenario import scenario


@scenario("flow-redrive-race", only_store="postgres")
def redrive_race(ctx: ScenarioContext) -> Iterator[None]:
    """One prerequisite of a follower is redriven while another's end is being counted."""
    flow = Flow()
    before = [flow.add(ctx.call()) for _ in range(3)]
    flow.add(ctx.call(), after=before, when="finished")
    ctx.enqueue_flow(flow, states=("succeeded", "dead"))
    first, second = ctx.record_begun(ctx.claim(limit=2))
    ctx.finish([(first, ctx.attempt_end(Outcome.PERMANENT, first))])
    yield
    _finish_while(
        ctx, second, "notify_followers", partial(job_actions.redrive, [first.id], "verify")
    )


@scenario("flow-last-race", only_store="postgres")
def last_race(ctx: ScenarioContext) -> Iterator[None]:
    """The last two prerequisites of a follower end at once."""
    ctx.enqueue_flow(group(ctx.call(), ctx.call()).then(ctx.call()), states=("succeeded",))
    first, second = ctx.record_begun(ctx.claim())
    given = decide(second, ctx.attempt_end(Outcome.SUCCEEDED, second), FAST_RETRY, 0.5)
    yield
    _finish_while(ctx, first, "notify_followers", partial(finish, [given]))


@scenario("flow-after-race", only_store="postgres")
def after_race(ctx: ScenarioContext) -> Iterator[None]:
    """A follower is added to a job that is being finished."""
    (claim,) = ctx.enqueue_and_claim()
    late = build_jobs([ctx.call(after=[claim.id])])
    yield
    _finish_while(ctx, claim, "finish", partial(enqueue, late))


def _finish_while(
    ctx: ScenarioContext, claim: Claim, statement: str, operation: Callable[[], Op[object]]
) -> None:
    """Finish a claim; after its statement, another process acts until it waits for the lock. The
    server reports that wait, because a busy machine may take a while."""
    given = [decide(claim, ctx.attempt_end(Outcome.SUCCEEDED, claim), FAST_RETRY, 0.5)]
    other = ctx.ol.store.clone()
    other.run(signs_of_loss)  # connected, to act at the right moment
    acts: list[Future[object]] = []
    with ThreadPoolExecutor(1) as thread:

        def meet() -> Statement:
            acts.append(thread.submit(other.run, operation))
            return Statement("outlast.verify:await_rival")

        finished: Finished = ctx.run(interrupted, partial(finish, given), statement, meet)
    ctx.record_answers(finished)
    acts[0].result()
    other.close()
