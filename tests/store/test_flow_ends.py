"""Flows where one end comes on top of another: added to, cancelled twice, sent again."""

from __future__ import annotations

import pytest

from outlast import Flow, InvalidFlow, Outlast, chain, group
from outlast.model.claim import Claim
from outlast.model.flow_builder import build_jobs
from outlast.model.lifecycle import Outcome
from outlast.model.outcome import AttemptEnd, Transition, decide
from outlast.ops import cancel_flow
from outlast.ops.finish import finish
from outlast.ops.report import job
from outlast.verify.checks.evidence import collect
from tests.store.conftest import Run
from tests.store.jobs import STEADY, end, take


@pytest.fixture(autouse=True)
def work(app: Outlast) -> None:
    @app.task
    def work() -> None: ...

    app.work = work  # type: ignore[attr-defined]


def adding(app: Outlast, claim: Claim, number: int) -> Transition:
    """A success that adds jobs which whoever waits for it shall wait for."""
    calls = [app.work.job() for _ in range(number)]  # type: ignore[attr-defined]
    jobs = tuple(build_jobs(calls, claim.flow, claim.id))
    return decide(claim, AttemptEnd(Outcome.SUCCEEDED, "1", jobs=jobs), STEADY, 0.5)


@pytest.mark.parametrize("beside", [False, True])
def test_a_follower_waits_for_what_those_before_it_added(
    run: Run, app: Outlast, beside: bool
) -> None:
    """R107: the one that adds is counted off once, also if another ends in the same transaction."""
    work = app.work  # type: ignore[attr-defined]
    *_, follower = app.enqueue(group(work.job(), work.job()).then(work.job()))
    first, second = take(run, 2)
    both = [adding(app, first, 2)] + ([_success(second)] if beside else [])
    run(finish, both)
    if not beside:
        end(run, second)
    assert (run(job, follower.id).state, run(job, follower.id).waits_for) == ("waiting", 2)
    added = take(run, 9)
    assert len(added) == 2
    end(run, added[0])
    assert run(job, follower.id).state == "waiting"
    end(run, added[1])
    assert run(job, follower.id).state == "ready"
    assert [one.id for one in take(run, 9)] == [follower.id]


def _success(claim: Claim) -> Transition:
    return decide(claim, AttemptEnd(Outcome.SUCCEEDED, "1"), STEADY, 0.5)


def test_a_milestone_needs_no_more_than_it_did(run: Run, app: Outlast) -> None:
    """R108: half of two is one, whatever is added."""
    work, flow = app.work, Flow()  # type: ignore[attr-defined]
    flow.add(work.job())
    flow.add(work.job())
    flow.milestone(0.5, work.job())
    *_, milestone = app.enqueue(flow)
    first, _ = take(run, 2)
    run(finish, [adding(app, first, 3)])
    assert run(job, milestone.id).state == "ready"


def test_a_cancel_returns_also_if_somebody_else_has_seen_its_end(verb: Run, app: Outlast) -> None:
    """R116, R117: a worker goes on with every cancelled flow, and may be done with it first."""
    work = app.work  # type: ignore[attr-defined]
    first, _ = app.enqueue(chain(work.job(), work.job()))
    why = app.store.run(cancel_flow.mark_cancelled, first.flow, "ann", "")
    while app.store.run(cancel_flow.cancel_page, first.flow, why).left:
        pass
    assert verb("cancel_flow", first.flow).state == "cancelled"
    assert verb("cancel_flow", first.flow).counts["cancelled"] == 2


def test_a_flow_with_keys_that_is_sent_again_leaves_nothing_behind(verb: Run, app: Outlast) -> None:
    """R095: its jobs stand under their keys, in the flow of the first time."""
    work = app.work  # type: ignore[attr-defined]

    def send() -> list[tuple[str, str | None]]:
        parts = [work.using(key=name).job() for name in "ab"]
        flow = group(*parts, fail_fast=True).then(work.using(key="c").job())
        return [(job.id, job.flow) for job in verb("enqueue", flow)]

    assert send() == send()
    evidence = collect(app.store, [])
    assert evidence.orphans == []
    assert len(evidence.flows) == 2  # it, and the part that fails together


def test_a_flow_of_which_only_some_jobs_exist_is_refused(verb: Run, app: Outlast) -> None:
    """R224: the error names the key, the job that has it, and what to do; nothing is stored."""
    work = app.work  # type: ignore[attr-defined]
    (standing,) = verb("enqueue", work.using(key="a").job())
    with pytest.raises(InvalidFlow, match=f"'a' .*{standing.id}.*using\\(key="):
        verb("enqueue", chain(work.using(key="a").job(), work.job()))
    assert sum(app.counts().values()) == 1 and app.flows() == []
