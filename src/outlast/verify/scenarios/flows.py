"""Flows: every way in which the end of a job affects its followers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

from ...model.claim import Claim
from ...model.errors import ClaimLost, InvalidFlow, OutlastError
from ...model.flow import Flow, chain, group
from ...model.job import Job
from ...model.lifecycle import Outcome
from ...model.outcome import decide
from ...ops import cancel_flow, duties, retention
from ...ops.claim import ClaimRequest
from ...ops.finish import Finished, finish_with_keys
from ...ops.finish_and_claim import finish_and_claim
from ...ops.flow_repair import link_deferred
from ..scenario_context import ScenarioContext
from ..workload import FAST_RETRY
from .maintenance import EXPIRED_AFTER_S
from .scenario import scenario

EITHER = ("succeeded", "dead")


@scenario("flow-enqueue")
def whole_flow(ctx: ScenarioContext) -> Iterator[None]:
    """A group with a follower, a graph with a milestone and a fail-fast group exist completely or
    not at all."""
    ctx.record_atomic(7)
    flow = Flow(fail_fast=True)
    first = flow.add(ctx.call())
    flow.add(ctx.call(), after=first)
    flow.milestone(0.5, ctx.call())
    yield
    ctx.enqueue_flow(group(ctx.call(), ctx.call(), ctx.call()).then(ctx.call()), flow,
               states=("succeeded",))  # fmt: skip


@scenario("flow-after")
def after_standing(ctx: ScenarioContext) -> Iterator[None]:
    """A follower of a job that has ended and of one that has not."""
    (done,) = ctx.enqueue_and_claim()
    ctx.finish([(done, ctx.attempt_end(Outcome.SUCCEEDED, done))])
    (ready,) = ctx.enqueue()
    yield
    ctx.enqueue_flow(ctx.call(after=[done.id, ready.id]), states=("succeeded",))


@scenario("flow-late", uses_caller_transaction=True)
def after_standing_in_callers(ctx: ScenarioContext) -> Iterator[None]:
    """A follower added in a caller's transaction, while its prerequisite is claimed, is linked
    afterwards by any worker."""
    (held,) = ctx.enqueue_and_claim()
    yield
    with ctx.workspace.connect() as connection:
        (job,) = ctx.ol.enqueue(ctx.call(after=[held.id]), conn=connection)
        connection.commit()
    ctx.record_promise(job.id, "succeeded")
    ctx.run(link_deferred)


@scenario("flow-keys")
def with_keys(ctx: ScenarioContext) -> Iterator[None]:
    """Repeated after a crash, it is still one flow."""
    ctx.record_atomic(3)
    yield
    _keyed(ctx)


@with_keys.on_retry
def send_again(ctx: ScenarioContext) -> Iterator[str]:
    if _keyed(ctx) != _keyed(ctx):
        yield "one flow with keys has jobs twice"


def _keyed(ctx: ScenarioContext) -> list[str]:
    parts = [ctx.call(key=name) for name in "ab"]
    jobs = ctx.enqueue_flow(group(*parts).then(ctx.call(key="c")), states=("succeeded",))
    return [job.id for job in jobs]


@scenario("flow-key")
def one_key(ctx: ScenarioContext) -> Iterator[None]:
    """A flow with one key exists completely or not at all; repeated after a crash, it exists
    once."""
    ctx.record_atomic(3)
    yield
    _with_one_key(ctx)


@one_key.on_retry
def send_whole_again(ctx: ScenarioContext) -> Iterator[str]:
    try:
        if _with_one_key(ctx) != _with_one_key(ctx):
            yield "a flow with a key has jobs twice"
    except OutlastError as error:
        yield f"a flow with a key cannot be sent again: {error}"


def _with_one_key(ctx: ScenarioContext) -> list[str]:
    plan = group(ctx.call(), ctx.call()).then(ctx.call()).using(key=ctx.queue)
    return [job.id for job in ctx.enqueue_flow(plan, states=("succeeded",))]


@scenario("flow-split")
def split(ctx: ScenarioContext) -> Iterator[None]:
    """A group whose callback alone has a key: the repeat is refused, and nothing is created."""
    ctx.record_atomic(3)
    yield
    _with_keyed_callback(ctx)


@split.on_retry
def send_split_again(ctx: ScenarioContext) -> Iterator[str]:
    _with_keyed_callback(ctx)
    if _with_keyed_callback(ctx):
        yield "a flow was sent again, and has old and new jobs"


def _with_keyed_callback(ctx: ScenarioContext) -> list[Job]:
    plan = group(ctx.call(), ctx.call()).then(ctx.call(key=ctx.queue))
    try:
        return ctx.enqueue_flow(plan, states=("succeeded",))
    except InvalidFlow:
        return []


@scenario("flow-last", owner=True)
def last_child(ctx: ScenarioContext) -> Iterator[None]:
    """The last of two prerequisites ends: the follower is ready, in the same transaction."""
    *children, follower = ctx.enqueue_flow(
        group(ctx.call(), ctx.call()).then(ctx.call()), states=("succeeded",)
    )
    ctx.record_planned(follower, children)
    first, second = ctx.record_begun(ctx.claim())
    ctx.finish([(first, ctx.attempt_end(Outcome.SUCCEEDED, first))])
    yield
    ctx.finish([(second, ctx.attempt_end(Outcome.SUCCEEDED, second))])


@scenario("flow-dead", owner=True)
def dead_child(ctx: ScenarioContext) -> Iterator[None]:
    """Followers that needed it are dead, transitively; followers that only waited for its end
    run."""
    flow = Flow()
    first = flow.add(ctx.call())
    second = flow.add(ctx.call(), after=first)
    third = flow.add(ctx.call(), after=second)
    flow.add(ctx.call(), after=third, when="finished")
    *_, anyway = ctx.enqueue_flow(flow, states=EITHER)
    ctx.record_promise(anyway.id, "succeeded")
    (claim,) = ctx.record_begun(ctx.claim())
    yield
    ctx.finish([(claim, ctx.attempt_end(Outcome.PERMANENT, claim))])


@scenario("flow-hooks", owner=True)
def hooks(ctx: ScenarioContext) -> Iterator[None]:
    """The hook for this final state is enqueued with it, and no other."""
    (job,) = ctx.enqueue_flow(ctx.call(**ctx.hooks()), states=EITHER)
    ctx.record_planned(job, hooked=True)
    (claim,) = ctx.record_begun(ctx.claim())
    yield
    ctx.finish([(claim, ctx.attempt_end(Outcome.PERMANENT, claim))])


@scenario("flow-join", owner=True)
def join(ctx: ScenarioContext) -> Iterator[None]:
    """Dependents also wait for jobs that a job adds to its flow."""
    one, other, follower = ctx.enqueue_flow(
        group(ctx.call(), ctx.call()).then(ctx.call()), states=("succeeded",)
    )
    ctx.record_planned(follower, [one, other])
    adds, simple = sorted(ctx.record_begun(ctx.claim()), key=lambda claim: claim.id != one.id)
    yield
    ends = [(adds, ctx.attempt_end(Outcome.SUCCEEDED, adds, jobs=2, join=True))]
    ctx.finish([*ends, (simple, ctx.attempt_end(Outcome.SUCCEEDED, simple))])


@scenario("flow-join-key", owner=True)
def join_with_key(ctx: ScenarioContext) -> Iterator[None]:
    """A job added with a key is inserted first, and rolled back if the claim was lost."""
    one, follower = ctx.enqueue_flow(chain(ctx.call(), ctx.call()), states=("succeeded",))
    ctx.record_planned(follower, [one])
    (claim,) = ctx.record_begun(ctx.claim())
    ended = ctx.attempt_end(Outcome.SUCCEEDED, claim, jobs=1, join=True)
    keyed = tuple(replace(job, key="only") for job in ended.jobs)
    given = decide(claim, ended._replace(jobs=keyed), FAST_RETRY, 0.5)
    yield
    try:
        ctx.record_answers(ctx.run(finish_with_keys, given))
    except ClaimLost:
        ctx.record_answers(Finished(lost=[given]))


@scenario("flow-turn", owner=True)
def tied_since(ctx: ScenarioContext) -> Iterator[None]:
    """A plain finish also updates a follower that was added after the claim."""
    (claim,) = ctx.enqueue_and_claim()
    ctx.enqueue_flow(ctx.call(after=[claim.id]), states=("succeeded",))
    yield
    _end_beside_claim(ctx, claim)


@scenario("flow-turn-last", owner=True)
def last_beside_claim(ctx: ScenarioContext) -> Iterator[None]:
    """The last of a group ends with a claim, which knew of its follower: that starts in the same
    transaction."""
    *parts, follower = ctx.enqueue_flow(
        group(ctx.call(), ctx.call()).then(ctx.call()), states=("succeeded",)
    )
    ctx.record_planned(follower, parts)
    first, last = ctx.record_begun(ctx.claim())
    ctx.finish([(first, ctx.attempt_end(Outcome.SUCCEEDED, first))])
    yield
    _end_beside_claim(ctx, last)


def _end_beside_claim(ctx: ScenarioContext, claim: Claim) -> None:
    given = [decide(claim, ctx.attempt_end(Outcome.SUCCEEDED, claim), FAST_RETRY, 0.5)]
    finished, more = ctx.run(
        finish_and_claim, given, ClaimRequest(ctx.owner, ctx.queue, 5, ctx.lease)
    )
    ctx.claims += ctx.record_begun(more)
    ctx.record_answers(finished)


@scenario("flow-cancel")
def cancel_all(ctx: ScenarioContext) -> Iterator[None]:
    """A flow with a running, a ready and a waiting job is cancelled; if the canceller dies, any
    worker completes the cancel."""
    jobs = ctx.enqueue_flow(group(ctx.call(), ctx.call(**ctx.hooks())).then(ctx.call()))
    ctx.record_planned(jobs[1], hooked=True)
    (held,) = ctx.record_begun(ctx.claim(limit=1))
    flow = jobs[0].flow or ""
    yield
    ctx.ol.cancel_flow(flow, "verify")
    ctx.ledger.write("stopped", flow, 0, {job.id: int(job.id == held.id) for job in jobs})
    for job in jobs:
        ctx.record_promise(job.id, "cancelled")


@scenario("flow-cancel-late")
def add_to_cancelled(ctx: ScenarioContext) -> Iterator[None]:
    """A job that continues in a cancelled flow may end in any way, but adds no jobs."""
    jobs = ctx.enqueue_flow(chain(ctx.call(), ctx.call()))
    (held,) = ctx.record_begun(ctx.claim())
    ctx.ol.cancel_flow(held.flow or "", "verify")
    yield
    ctx.finish([(held, ctx.attempt_end(Outcome.SUCCEEDED, held, jobs=2, join=True))])
    ctx.ledger.write("stopped", held.flow or "", 0, {job.id: 0 for job in jobs} | {held.id: 1})


@scenario("flow-cancel-one")
def cancel_one(ctx: ScenarioContext) -> Iterator[None]:
    """A job is cancelled, and followers that needed it are dead."""
    first, second = ctx.enqueue_flow(chain(ctx.call(), ctx.call()))
    yield
    ctx.ol.cancel(first.id, "verify")
    ctx.record_promise(first.id, "cancelled")
    ctx.record_promise(second.id, "dead")


@scenario("flow-break", owner=True)
def break_team(ctx: ScenarioContext) -> Iterator[None]:
    """The first failure cancels the other jobs of a group, by any live worker."""
    team = group(ctx.call(), ctx.call(), ctx.call(), fail_fast=True)
    *_, after = ctx.enqueue_flow(team.then(ctx.call(), when="finished"))
    ctx.record_promise(after.id, "succeeded")
    (claim,) = ctx.record_begun(ctx.claim(limit=1))
    yield
    ctx.finish([(claim, ctx.attempt_end(Outcome.PERMANENT, claim))])
    for flow, why in ctx.run(cancel_flow.unfinished_cancels):
        ctx.run(cancel_flow.cancel_page, flow, why)


@scenario("flow-expire")
def expire(ctx: ScenarioContext) -> Iterator[None]:
    first, second = ctx.enqueue_flow(chain(ctx.call(expires=0.001), ctx.call()))
    ctx.forbid_claim(first.id)
    ctx.record_promise(second.id, "dead")
    time.sleep(EXPIRED_AFTER_S)
    yield
    ctx.run(duties.expire)


@scenario("flow-redrive")
def redrive(ctx: ScenarioContext) -> Iterator[None]:
    """A redrive includes the followers that died because of the job; jobs that already ran stay."""
    flow = Flow()
    first = flow.add(ctx.call())
    second = flow.add(ctx.call(), after=first)
    flow.add(ctx.call(), after=[first, second])
    jobs = ctx.enqueue_flow(flow, states=EITHER)
    (claim,) = ctx.record_begun(ctx.claim())
    ctx.finish([(claim, ctx.attempt_end(Outcome.PERMANENT, claim))])
    yield
    ctx.ol.retry(claim.id)
    for job in jobs:
        ctx.record_promise(job.id, "succeeded")


@scenario("flow-retry")
def retry_all(ctx: ScenarioContext) -> Iterator[None]:
    """A cancelled flow is reopened, and all its jobs run."""
    jobs = ctx.enqueue_flow(chain(ctx.call(), ctx.call()), states=("succeeded", "cancelled"))
    flow = jobs[0].flow or ""
    ctx.ol.cancel_flow(flow, "verify")
    yield
    ctx.ol.retry_flow(flow)
    for job in jobs:
        ctx.record_promise(job.id, "succeeded")


@scenario("flow-prune", removes_jobs=True, max_points=8)
def prune(ctx: ScenarioContext) -> Iterator[None]:
    """An ended flow is pruned with its edges; results that an unfinished one needs are kept."""
    for _ in range(2):
        over, _ = ctx.ol.enqueue(chain(ctx.call(), ctx.call(**ctx.hooks())))
        ctx.ol.cancel_flow(over.flow or "")
    flow = Flow()
    first = flow.add(ctx.call())
    flow.add(ctx.call(delay=0.3), after=first, when="finished")
    needed, follower = ctx.ol.enqueue(flow)
    ctx.record_promise(follower.id, "succeeded")
    ctx.ol.cancel(needed.id)
    time.sleep(EXPIRED_AFTER_S)
    yield
    for _ in range(3):
        ctx.run(retention.prune, "cancelled", 0.0, 2)
    remaining = {job.id for job in ctx.ol.jobs(queue=ctx.queue)}
    if needed.id not in remaining and not ctx.ol.job(follower.id).final:
        ctx.report("I5", "left-behind", "a job that an unfinished flow needs was pruned")
