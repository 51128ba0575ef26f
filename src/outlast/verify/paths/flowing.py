"""Jobs that wait for each other: every way in which the end of one concerns others."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

from ...model.errors import ClaimLost, InvalidFlow, OutlastError
from ...model.flow import Flow, chain, group
from ...model.job import Job
from ...model.lifecycle import Outcome
from ...model.outcome import decide
from ...ops import cancel_flow, duties
from ...ops.claim import Wanted
from ...ops.finish import Finished, finish_with_keys, turn
from ...ops.latecomers import count_late
from ..stage import Stage
from ..workload import AT_ONCE
from .healing import A_MOMENT
from .path import path

EITHER = ("succeeded", "dead")


@path("flow-enqueue")
def whole_flow(stage: Stage) -> Iterator[None]:
    """A group with one after it, a graph with a milestone, a team: all of it or nothing."""
    stage.together(7)
    flow = Flow(fail_fast=True)
    first = flow.add(stage.job())
    flow.add(stage.job(), after=first)
    flow.milestone(0.5, stage.job())
    yield
    stage.flow(group(stage.job(), stage.job(), stage.job()).then(stage.job()), flow,
               states=("succeeded",))  # fmt: skip


@path("flow-after")
def after_standing(stage: Stage) -> Iterator[None]:
    """Comes after one that has ended and one that has not."""
    (done,) = stage.claimed()
    stage.finish([(done, stage.ended(Outcome.SUCCEEDED, done))])
    (ready,) = stage.enqueued()
    yield
    stage.flow(stage.job(after=[done.id, ready.id]), states=("succeeded",))


@path("flow-late", callers=True)
def after_standing_in_callers(stage: Stage) -> Iterator[None]:
    """The same in a caller's transaction, while the other is in somebody's hands: it is counted
    when it has come, by whoever works."""
    (held,) = stage.claimed()
    yield
    with stage.place.connect() as connection:
        (job,) = stage.ol.enqueue(stage.job(after=[held.id]), conn=connection)
        connection.commit()
    stage.promise(job.id, "succeeded")
    stage.run(count_late)


@path("flow-keys")
def with_keys(stage: Stage) -> Iterator[None]:
    """Sent again after a crash, it is still one flow."""
    stage.together(3)
    yield
    _keyed(stage)


@with_keys.again
def send_again(stage: Stage) -> Iterator[str]:
    if _keyed(stage) != _keyed(stage):
        yield "one flow with keys has jobs twice"


def _keyed(stage: Stage) -> list[str]:
    parts = [stage.job(key=name) for name in "ab"]
    jobs = stage.flow(group(*parts).then(stage.job(key="c")), states=("succeeded",))
    return [job.id for job in jobs]


@path("flow-key")
def one_key(stage: Stage) -> Iterator[None]:
    """A flow with one key: all of it or nothing, and sent again after a crash it is still one."""
    stage.together(3)
    yield
    _with_one_key(stage)


@one_key.again
def send_whole_again(stage: Stage) -> Iterator[str]:
    try:
        if _with_one_key(stage) != _with_one_key(stage):
            yield "a flow with a key has jobs twice"
    except OutlastError as error:
        yield f"a flow with a key cannot be sent again: {error}"


def _with_one_key(stage: Stage) -> list[str]:
    plan = group(stage.job(), stage.job()).then(stage.job()).using(key=stage.queue)
    return [job.id for job in stage.flow(plan, states=("succeeded",))]


@path("flow-split")
def split(stage: Stage) -> Iterator[None]:
    """A group whose callback alone has a key: sent again it is refused, and nothing is made."""
    stage.together(3)
    yield
    _with_keyed_callback(stage)


@split.again
def send_split_again(stage: Stage) -> Iterator[str]:
    _with_keyed_callback(stage)
    if _with_keyed_callback(stage):
        yield "a flow was sent again, and is half old and half new"


def _with_keyed_callback(stage: Stage) -> list[Job]:
    plan = group(stage.job(), stage.job()).then(stage.job(key=stage.queue))
    try:
        return stage.flow(plan, states=("succeeded",))
    except InvalidFlow:
        return []


@path("flow-last", owner=True)
def last_child(stage: Stage) -> Iterator[None]:
    """The last of two ends: the one after them starts, in the same transaction."""
    *children, follower = stage.flow(
        group(stage.job(), stage.job()).then(stage.job()), states=("succeeded",)
    )
    stage.asked(follower, children)
    first, second = stage.began(stage.claim())
    stage.finish([(first, stage.ended(Outcome.SUCCEEDED, first))])
    yield
    stage.finish([(second, stage.ended(Outcome.SUCCEEDED, second))])


@path("flow-dead", owner=True)
def dead_child(stage: Stage) -> Iterator[None]:
    """Who needed it is dead, and so on down; who only waited for an end runs."""
    flow = Flow()
    first = flow.add(stage.job())
    second = flow.add(stage.job(), after=first)
    third = flow.add(stage.job(), after=second)
    flow.add(stage.job(), after=third, when="finished")
    *_, anyway = stage.flow(flow, states=EITHER)
    stage.promise(anyway.id, "succeeded")
    (claim,) = stage.began(stage.claim())
    yield
    stage.finish([(claim, stage.ended(Outcome.PERMANENT, claim))])


@path("flow-hooks", owner=True)
def hooks(stage: Stage) -> Iterator[None]:
    """The job for this end comes to be with it, and no other."""
    (job,) = stage.flow(stage.job(**stage.hooks()), states=EITHER)
    stage.asked(job, hooked=True)
    (claim,) = stage.began(stage.claim())
    yield
    stage.finish([(claim, stage.ended(Outcome.PERMANENT, claim))])


@path("flow-join", owner=True)
def join(stage: Stage) -> Iterator[None]:
    """What a job adds to its flow, whoever waits for it waits for too."""
    one, other, follower = stage.flow(
        group(stage.job(), stage.job()).then(stage.job()), states=("succeeded",)
    )
    stage.asked(follower, [one, other])
    adds, simple = sorted(stage.began(stage.claim()), key=lambda claim: claim.id != one.id)
    yield
    ends = [(adds, stage.ended(Outcome.SUCCEEDED, adds, jobs=2, join=True))]
    stage.finish([*ends, (simple, stage.ended(Outcome.SUCCEEDED, simple))])


@path("flow-join-key", owner=True)
def join_with_key(stage: Stage) -> Iterator[None]:
    """The same with a key: what is added goes first, and is taken back if the claim was lost."""
    one, follower = stage.flow(chain(stage.job(), stage.job()), states=("succeeded",))
    stage.asked(follower, [one])
    (claim,) = stage.began(stage.claim())
    ended = stage.ended(Outcome.SUCCEEDED, claim, jobs=1, join=True)
    keyed = tuple(replace(job, key="only") for job in ended.jobs)
    given = decide(claim, ended._replace(jobs=keyed), AT_ONCE, 0.5)
    yield
    try:
        stage.told(stage.run(finish_with_keys, given))
    except ClaimLost:
        stage.told(Finished(lost=[given]))


@path("flow-turn", owner=True)
def tied_since(stage: Stage) -> Iterator[None]:
    """Somebody came after it when it was already in hand: a plain turn tells them too."""
    (claim,) = stage.claimed()
    stage.flow(stage.job(after=[claim.id]), states=("succeeded",))
    given = [decide(claim, stage.ended(Outcome.SUCCEEDED, claim), AT_ONCE, 0.5)]
    yield
    finished, more = stage.run(turn, given, Wanted(stage.owner, stage.queue, 5, stage.lease))
    stage.claims += stage.began(more)
    stage.told(finished)


@path("flow-cancel")
def cancel_all(stage: Stage) -> Iterator[None]:
    """One runs, one is ready, one waits; if whoever cancels dies, every worker goes on with it."""
    jobs = stage.flow(group(stage.job(), stage.job(**stage.hooks())).then(stage.job()))
    stage.asked(jobs[1], hooked=True)
    (held,) = stage.began(stage.claim(limit=1))
    flow = jobs[0].flow or ""
    yield
    stage.ol.cancel_flow(flow, "verify")
    stage.ledger.write("stopped", flow, 0, {job.id: int(job.id == held.id) for job in jobs})
    for job in jobs:
        stage.promise(job.id, "cancelled")


@path("flow-cancel-late")
def add_to_cancelled(stage: Stage) -> Iterator[None]:
    """One that ran on in a cancelled flow may end as it likes, and adds nothing."""
    jobs = stage.flow(chain(stage.job(), stage.job()))
    (held,) = stage.began(stage.claim())
    stage.ol.cancel_flow(held.flow or "", "verify")
    yield
    stage.finish([(held, stage.ended(Outcome.SUCCEEDED, held, jobs=2, join=True))])
    stage.ledger.write("stopped", held.flow or "", 0, {job.id: 0 for job in jobs} | {held.id: 1})


@path("flow-cancel-one")
def cancel_one(stage: Stage) -> Iterator[None]:
    """A job is cancelled, and who needed it is dead."""
    first, second = stage.flow(chain(stage.job(), stage.job()))
    yield
    stage.ol.cancel(first.id, "verify")
    stage.promise(first.id, "cancelled")
    stage.promise(second.id, "dead")


@path("flow-break", owner=True)
def break_team(stage: Stage) -> Iterator[None]:
    """With the first failure the others are to be cancelled, by whoever is alive."""
    team = group(stage.job(), stage.job(), stage.job(), fail_fast=True)
    *_, after = stage.flow(team.then(stage.job(), when="finished"))
    stage.promise(after.id, "succeeded")
    (claim,) = stage.began(stage.claim(limit=1))
    yield
    stage.finish([(claim, stage.ended(Outcome.PERMANENT, claim))])
    for flow, why in stage.run(cancel_flow.unsettled):
        stage.run(cancel_flow.go_on, flow, why)


@path("flow-expire")
def expire(stage: Stage) -> Iterator[None]:
    first, second = stage.flow(chain(stage.job(expires=0.001), stage.job()))
    stage.never(first.id)
    stage.promise(second.id, "dead")
    time.sleep(A_MOMENT)
    yield
    stage.run(duties.expire)


@path("flow-redrive")
def redrive(stage: Stage) -> Iterator[None]:
    """Whoever is brought back brings back those that died of it; who ran already stays so."""
    flow = Flow()
    first = flow.add(stage.job())
    second = flow.add(stage.job(), after=first)
    flow.add(stage.job(), after=[first, second])
    jobs = stage.flow(flow, states=EITHER)
    (claim,) = stage.began(stage.claim())
    stage.finish([(claim, stage.ended(Outcome.PERMANENT, claim))])
    yield
    stage.ol.retry(claim.id)
    for job in jobs:
        stage.promise(job.id, "succeeded")


@path("flow-retry")
def retry_all(stage: Stage) -> Iterator[None]:
    """A flow that was cancelled is opened again, and all of it runs."""
    jobs = stage.flow(chain(stage.job(), stage.job()), states=("succeeded", "cancelled"))
    flow = jobs[0].flow or ""
    stage.ol.cancel_flow(flow, "verify")
    yield
    stage.ol.retry_flow(flow)
    for job in jobs:
        stage.promise(job.id, "succeeded")


@path("flow-prune", apart=True, most=8)
def prune(stage: Stage) -> Iterator[None]:
    """A flow that is over goes, with its edges; what one that goes on has done is kept."""
    for _ in range(2):
        over, _ = stage.ol.enqueue(chain(stage.job(), stage.job(**stage.hooks())))
        stage.ol.cancel_flow(over.flow or "")
    flow = Flow()
    first = flow.add(stage.job())
    flow.add(stage.job(delay=0.3), after=first, when="finished")
    needed, follower = stage.ol.enqueue(flow)
    stage.promise(follower.id, "succeeded")
    stage.ol.cancel(needed.id)
    time.sleep(A_MOMENT)
    yield
    for _ in range(3):
        stage.run(duties.prune, "cancelled", 0.0, 2)
    kept = {job.id for job in stage.ol.jobs(queue=stage.queue)}
    if needed.id not in kept and not stage.ol.job(follower.id).final:
        stage.saw("I5", "left-behind", "what a flow needs that goes on was pruned")
