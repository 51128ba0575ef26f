"""The one way out of running: what an attempt's end does to its job, and who may say it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from outlast import JobDead, JobNotFound, Outlast
from outlast.model.claim import Claim
from outlast.model.lifecycle import Outcome
from outlast.model.outcome import AttemptEnd, decide
from outlast.model.retry import Retry
from outlast.ops import job_actions
from outlast.ops.claim import ClaimRequest
from outlast.ops.enqueue import enqueue
from outlast.ops.finish import finish
from outlast.ops.finish_and_claim import finish_and_claim
from outlast.ops.reclaim import reclaim
from outlast.ops.renew import renew
from outlast.ops.report import history, job
from tests.store.conftest import Run
from tests.store.jobs import (
    column,
    end,
    end_leases,
    ending,
    make_due,
    new,
    put,
    put_and_take,
    set_all,
    states,
    take,
)
from tests.support import Database
from tests.support.databases import KINDS

pytestmark = pytest.mark.kinds(*KINDS)


def test_a_success_keeps_its_result_and_its_follow_ups(run: Run, database: Database) -> None:
    """R026, R161: result, state and what the handler enqueued commit together."""
    held = put_and_take(run)
    end(run, held, result='{"pages": [1, 2]}', jobs=(new(queue="next"), new(queue="next")))
    after = run(job, held.id)
    assert (after.state, after.result, after.attempt) == ("succeeded", {"pages": [1, 2]}, 1)
    assert after.finished_at is not None and after.lease_until is None
    assert len(take(run, 9, queue="next")) == 2


def stolen(run: Run, database: Database, by: str = "w2") -> tuple[Claim, Claim]:
    """A worker whose job was reclaimed and is now in another's hands; both claims."""
    zombie = put_and_take(run)
    end_leases(database)
    run(reclaim)
    (owner,) = take(run, worker=by)
    assert owner.id == zombie.id and owner.fence > zombie.fence
    return zombie, owner


@pytest.mark.parametrize(
    "outcome",
    ["succeeded", "failed", "timed-out", "permanent", "postponed", "cancelled", "released",
     "undecodable"],
)  # fmt: skip
def test_a_zombie_cannot_end_what_another_holds(run: Run, database: Database, outcome: str) -> None:
    """R030, R161, `zombie`: complete, fail, retry, release, cancel: all refused, and told so."""
    zombie, owner = stolen(run, database)
    before = run(job, owner.id)
    finished = end(run, zombie, outcome, result='"stale"', jobs=(new(), new(key="k")))
    assert finished.accepted == []
    assert [one.claim for one in finished.lost] == [zombie]
    assert run(job, owner.id) == before
    assert len(states(database)) == 1, "and what it enqueued does not exist"
    assert len(run(history, owner.id)[0]) == 1, "only the reclaim is on record"
    end(run, owner, result='"fresh"')
    assert run(job, owner.id).result == "fresh"


def test_a_crash_that_two_report_costs_one_crash(run: Run, database: Database) -> None:
    """R085: whoever noticed first has said it; the second report changes nothing."""
    zombie, owner = stolen(run, database)
    before = run(job, owner.id)
    end(run, zombie, "crashed")
    assert run(job, owner.id) == before
    assert len(run(history, owner.id)[0]) == before.crashes == 1


@pytest.mark.parametrize("by", ["w1", "w2"])
def test_a_zombie_cannot_renew_or_speak(run: Run, database: Database, by: str) -> None:
    """R030, R138: its renewal is answered with a loss, its events are dropped; also when it was
    the same worker that claimed the job again."""
    zombie, owner = stolen(run, database, by)
    lease = run(job, owner.id).lease_until
    renewed = run(renew, "w1", {zombie.id: zombie.fence}, 3600.0)
    assert (renewed.kept, renewed.lost) == (set(), {zombie.id})
    assert renewed.unknown_claims == ([owner] if by == "w1" else [])
    assert run(job, owner.id).lease_until == lease
    said = {"n": 0, "job": owner.id, "kind": "log", "data": '"boo"'}
    run(finish, [], [said | zombie.guard])
    assert run(history, owner.id)[1] == []
    run(finish, [], [said | owner.guard])
    (event,) = run(history, owner.id)[1]
    assert (event.kind, event.data, event.attempt) == ("log", "boo", owner.attempt)


def test_a_renewal_in_another_workers_name_holds_nothing(run: Run) -> None:
    held = put_and_take(run)
    assert run(renew, "other", {held.id: held.fence}, 60.0).lost == {held.id}
    assert run(renew, "w1", {held.id: held.fence}, 60.0).kept == {held.id}


def test_a_zombie_and_an_owner_in_one_batch_are_told_apart(run: Run, database: Database) -> None:
    """R030: a worker that lost a job and claimed it again hands in both ends at once."""
    zombie, owner = stolen(run, database)
    stale = ending(zombie, result='"stale"', jobs=(new(queue="stale"),))
    fresh = ending(owner, result='"fresh"', jobs=(new(queue="fresh"),))
    finished = run(finish, [stale, fresh])
    assert finished.accepted == [(fresh, "succeeded")]
    assert finished.lost == [stale]
    assert run(job, owner.id).result == "fresh"
    assert take(run, 9, queue="stale") == []
    assert len(take(run, 9, queue="fresh")) == 1


def test_a_zombies_plain_success_is_refused_beside_a_claim(run: Run, database: Database) -> None:
    """R030: the round trip that finishes and claims is fenced as well."""
    zombie, owner = stolen(run, database)
    (other,) = put(run)
    finished, claims = run(
        finish_and_claim, [ending(zombie)], ClaimRequest("w1", "default", 9, 60.0)
    )
    assert (finished.accepted, len(finished.lost)) == ([], 1)
    assert [one.id for one in claims] == [other.id]
    assert run(job, owner.id).state == "running"


@pytest.mark.parametrize("ended", ["succeeded", "dead", "cancelled"])
def test_a_final_state_is_final(run: Run, database: Database, ended: str) -> None:
    """R111: a late outcome changes nothing and is told that it lost."""
    held = put_and_take(run)
    first = {"succeeded": "succeeded", "dead": "permanent", "cancelled": "cancelled"}[ended]
    late = "failed" if ended == "succeeded" else "succeeded"
    end(run, held, first)
    before = run(job, held.id)
    assert before.state == ended
    finished = end(run, held, late, result="1")
    assert (finished.accepted, len(finished.lost)) == ([], 1)
    assert run(renew, "w1", {held.id: held.fence}, 60.0).lost == {held.id}
    assert run(job, held.id) == before


def test_failures_are_retried_with_growing_delays_until_the_budget_is_spent(
    run: Run, database: Database
) -> None:
    """R046, R047, R048, R051, R059: base·2ⁿ⁻¹, then dead with its last error and whole history."""
    (made,) = put(run, max_attempts=4)
    slow = Retry(max_attempts=4, base=60.0, cap=600.0, jitter=0.0)  # no machine is as busy as that
    gaps = []
    for attempt in range(1, 5):
        (held,) = take(run)
        assert (held.attempt, held.failures) == (attempt, attempt - 1)
        error = {"type": "Boom", "message": f"number {attempt}", "traceback": ""}
        failed = AttemptEnd(Outcome.FAILED, error=error)
        run(finish, [decide(held, failed, slow, 0.5)])
        after = run(job, made.id)
        if after.state == "scheduled":
            attempts, _ = run(history, made.id)
            assert take(run) == [], "no attempt before its time"
            gaps.append((after.run_at - attempts[-1].finished_at).total_seconds())
            make_due(database)
    assert gaps == pytest.approx([60.0, 120.0, 240.0], abs=5.0)
    assert (after.state, after.failures, after.attempt, after.worker) == ("dead", 4, 4, "w1")
    assert after.error == {"type": "Boom", "message": "number 4", "traceback": ""}
    attempts, _ = run(history, made.id)
    assert [one.error["message"] for one in attempts] == [f"number {n}" for n in range(1, 5)]
    assert [one.attempt for one in attempts] == [1, 2, 3, 4]
    assert {(one.outcome, one.worker) for one in attempts} == {("failed", "w1")}
    assert all(one.started_at <= one.finished_at for one in attempts)


def test_a_thousand_retries_are_spread(run: Run, database: Database) -> None:
    """R046, R058: delays within the band, and no second holds more than a tenth of them."""
    put(run, 1000)
    policy = Retry(max_attempts=3, base=20.0, cap=60.0, jitter=0.5)
    ended = AttemptEnd(Outcome.FAILED, error={"type": "Boom"})
    held = take(run, 1000)
    run(finish, [decide(one, ended, policy, n / 1000) for n, one in enumerate(held)])
    extracted = "run_at" if database.is_sqlite else "extract(epoch FROM run_at)"
    due = [float(moment) for moment in column(database, extracted)]
    start = held[0].started_at
    assert all(9.9 < moment - start < 60 for moment in due)
    buckets = [int(moment - start) for moment in due]
    assert max(buckets.count(second) for second in set(buckets)) <= 100


@pytest.mark.parametrize("outcome", ["permanent", "undecodable"])
def test_a_permanent_failure_is_not_retried(run: Run, outcome: str, app: Outlast) -> None:
    """R013, R048: one attempt, dead, with its reason."""
    held = put_and_take(run, max_attempts=9)
    end(run, held, outcome)
    after = run(job, held.id)
    assert (after.state, after.attempt, after.failures) == ("dead", 1, 1)
    with pytest.raises(JobDead, match="it broke"):
        app.result(held.id, timeout=5)


def test_a_postponed_job_spends_nothing(run: Run, database: Database) -> None:
    """R054, R057: called later, as often as it likes, without spending the failure budget."""
    (made,) = put(run, max_attempts=1)
    for attempt in range(1, 5):
        (held,) = take(run)
        assert (held.attempt, held.failures) == (attempt, 0)
        end(run, held, "postponed", delay=30.0)
        make_due(database)
    assert run(job, made.id).state == "scheduled"


def test_outcomes_of_many_jobs_are_applied_together(run: Run, database: Database) -> None:
    put(run, 6, max_attempts=3)
    held = take(run, 6)
    outcomes = ["succeeded", "failed", "permanent", "postponed", "cancelled", "released"]
    expected = ["succeeded", "scheduled", "dead", "scheduled", "cancelled", "ready"]
    ends = [ending(one, how) for one, how in zip(held, outcomes, strict=True)]
    finished = run(finish, ends)
    assert finished.accepted == list(zip(ends, expected, strict=True))
    assert states(database) == expected


def test_an_old_copy_of_a_job_cannot_revert_it(run: Run, database: Database) -> None:
    """R113: writes name their columns; what else changed meanwhile stays."""
    held = put_and_take(run)
    set_all(database, "trace = 'edited', priority = 9")
    run(renew, "w1", {held.id: held.fence}, 60.0)
    run(job_actions.cancel, held.id, "ann", "")
    end(run, held, "released")
    after = run(job, held.id)
    assert (after.state, after.trace, after.priority) == ("cancelled", "edited", 9)


def test_a_redrive_gives_a_new_life_with_full_budgets(run: Run, database: Database) -> None:
    """R052: attempts reset, fence not; who and when is on record."""
    held = put_and_take(run, max_attempts=1, expires_in=3600.0)
    end(run, held, "failed")
    revived = run(job_actions.redrive_one, held.id, "ann@host")
    assert (revived.state, revived.attempt, revived.failures, revived.crashes) == ("ready", 0, 0, 0)
    assert (revived.worker, revived.finished_at, revived.expires_at) == (None, None, None)
    _, (event,) = run(history, held.id)
    assert (event.kind, event.data) == ("redrive", {"by": "ann@host"})
    (again,) = take(run)
    assert (again.id, again.fence, again.attempt) == (held.id, held.fence + 1, 1)
    assert end(run, held).lost, "the life before has no say in this one"
    assert end(run, again).lost == []


def test_redriving_twice_is_one_new_life(run: Run) -> None:
    """R052: idempotent; a job that is queued, runs or succeeded is not touched."""
    held = put_and_take(run)
    end(run, held, "permanent")
    assert run(job_actions.redrive, [held.id, held.id], "ann") == [held.id]
    assert run(job_actions.redrive, [held.id], "bob") == []
    assert run(job_actions.redrive_one, held.id, "bob").state == "ready"
    assert len(run(history, held.id)[1]) == 1
    with pytest.raises(JobNotFound):
        run(job_actions.redrive_one, new().id, "ann")


def test_text_of_any_kind_comes_back_as_it_went_in(run: Run) -> None:
    """R006"""
    held = put_and_take(run)
    text = 'quote " backslash \\ newline \n percent % colon :name dollar $1 é☃𝄞'
    error: dict[str, Any] = {"type": "Odd", "message": text, "traceback": text}
    end(run, held, "permanent", error=error)
    assert run(job, held.id).error == error
    run(job_actions.redrive, [held.id], text)
    (again,) = take(run)
    end(run, again, result=json.dumps([text]))
    assert run(job, held.id).result == [text]
    run(enqueue, [new(args=json.dumps({text: text}), key=text, tenant=text, trace=text)])
