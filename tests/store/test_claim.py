"""A worker takes jobs: which, in what order, and what it then holds."""

from __future__ import annotations

import random

import pytest

from outlast import JobCancelled, Outlast
from outlast.model.ids import new_job_id
from outlast.ops import duties, job_actions
from outlast.ops.claim import PendingQueues, poll, poll_queues, promote
from outlast.ops.enqueue import enqueue
from outlast.ops.finish import finish
from outlast.ops.report import clock, history, job
from outlast.store import Store, open_store
from tests.store.conftest import Run
from tests.store.jobs import end, ending, make_due, new, put, put_and_take, states, take
from tests.support import Database, eventually
from tests.support.databases import KINDS

pytestmark = pytest.mark.kinds(*KINDS)


def test_priority_comes_first_then_the_longest_due_then_the_oldest(run: Run) -> None:
    """R037: the exact order, within a batch and from batch to batch."""
    now = run(clock)
    shuffled = [
        new(priority=priority, at=now - age, id=id)
        for priority in (-100, 0, 7, 100)
        for age in (0, 10, 20)
        for id in (new_job_id(), new_job_id())
    ]
    random.Random(37).shuffle(shuffled)
    run(enqueue, shuffled)
    expected = sorted(shuffled, key=lambda one: (-one.priority, one.at or 0, one.id))
    claimed = [one for size in (1, 5, 2, 9, 7) for one in take(run, size)]
    assert [one.id for one in claimed] == [one.id for one in expected]


def test_a_retry_takes_its_place_by_when_it_is_due(run: Run, database: Database) -> None:
    """R037: a job that failed does not jump ahead of those that were due before it."""
    now = run(clock)
    failed = put_and_take(run, at=now - 20)
    end(run, failed, "postponed", delay=0.05)
    waiting = put(run, 3, at=now - 10)
    eventually(lambda: run(promote) or run(job, failed.id).state == "ready")
    assert [one.id for one in take(run, 9)] == [one.id for one in waiting] + [failed.id]


def test_a_claim_carries_the_facts_of_its_row(run: Run) -> None:
    """R011, R042: who holds it, since when, which attempt, under which fence."""
    asked = new(
        tenant="acme", queue="docs", task="extract", args='{"a": 1}', priority=4, max_attempts=7,
        max_crashes=2, key="k", timeout=9.0, retry='{"base": 2}', trace="t",
    )  # fmt: skip
    (made,) = run(enqueue, [asked])
    (held,) = take(run, queue="docs", worker="w7", lease=30.0)
    after = run(job, asked.id)
    for name in ("id", "tenant", "queue", "task", "priority", "max_attempts", "max_crashes"):
        assert getattr(held, name) == getattr(asked, name) == getattr(after, name), name
    assert (held.key, held.timeout, held.trace) == ("k", 9.0, "t")
    assert (held.retry, held.args) == ('{"base": 2}', '{"a": 1}')
    assert (held.fence, held.attempt, held.failures, held.crashes) == (1, 1, 0, 0)
    assert (held.worker, after.worker, after.fence, after.attempt) == ("w7", "w7", 1, 1)
    assert after.started_at is not None and after.lease_until is not None
    assert after.started_at.timestamp() == pytest.approx(held.started_at, abs=1e-5)
    assert (after.lease_until - after.started_at).total_seconds() == pytest.approx(30, abs=0.01)
    assert made.created_at == after.created_at


def test_a_claimed_job_is_seen_running_at_once(run: Run, app: Outlast) -> None:
    """R121: the claim is the state change; another connection sees it when the claim returns."""
    for made in put(run, 20):
        (held,) = take(run)
        assert held.id == made.id
        assert app.job(made.id).state == "running"


def test_a_claim_takes_no_more_than_asked_and_only_its_queue(run: Run) -> None:
    put(run, 5)
    put(run, 5, queue="other")
    assert len(take(run, 3)) == 3
    assert len(take(run, 10)) == 2
    assert {one.queue for one in take(run, 10, queue="other")} == {"other"}
    assert take(run, 10) == take(run, 10, queue="nobody's") == []


def test_tasks_that_a_worker_cannot_run_are_left_for_others(run: Run) -> None:
    """R010: never destroyed, never spent."""
    (strange,) = put(run, task="strange")
    (known,) = put(run, task="known")
    assert [one.id for one in take(run, 9, unknown={"strange", "other"})] == [known.id]
    assert run(job, strange.id).attempt == 0
    assert [one.id for one in take(run, 9)] == [strange.id]


def test_a_lower_id_that_commits_later_is_still_delivered(run: Run) -> None:
    """R017: claimed by state, never by a cursor over ids."""
    early, late = new(), new()
    assert early.id < late.id
    run(enqueue, [late])
    assert [one.id for one in take(run, 9)] == [late.id]
    run(enqueue, [early])
    assert [one.id for one in take(run, 9)] == [early.id]


@pytest.mark.kinds("postgres", "pgbouncer")
def test_a_transaction_that_commits_late_is_still_delivered(
    run: Run, app: Outlast, database: Database
) -> None:
    """R017: two open transactions; the one that began first commits last."""
    import psycopg

    @app.task
    def work() -> None: ...

    with (
        psycopg.connect(database.direct_url) as first,
        psycopg.connect(database.direct_url) as second,
    ):
        slow = work.using(conn=first).enqueue()
        quick = work.using(conn=second).enqueue()
        second.commit()
        assert [one.id for one in take(run, 9)] == [quick.id]
        first.commit()
        assert [one.id for one in take(run, 9)] == [slow.id]


def test_release_puts_a_job_back_where_it_was(run: Run) -> None:
    """R038: at once, the attempt not charged, its place kept."""
    first, *others = put(run, 3)
    (held,) = take(run)
    assert held.id == first.id
    end(run, held, "released")
    after = run(job, first.id)
    assert (after.state, after.attempt, after.worker, after.fence) == ("ready", 0, None, 1)
    assert after.run_at == first.run_at
    again = take(run, 3)
    assert [one.id for one in again] == [first.id, *(one.id for one in others)]
    assert (again[0].attempt, again[0].fence) == (1, 2)


def test_a_release_with_a_delay_waits(run: Run, database: Database) -> None:
    """R038: where coming back at once would spin."""
    held = put_and_take(run)
    end(run, held, "released", delay=60.0)
    assert states(database) == ["scheduled"]
    make_due(database)
    assert take(run)[0].attempt == 1


def test_an_expired_job_never_runs(run: Run, app: Outlast) -> None:
    """R060: not claimed when it is late, and ended as cancelled with that reason."""
    (ready,) = put(run, expires_in=0.2)
    (scheduled,) = put(run, delay=60.0, expires_in=0.2)
    (kept,) = put(run, expires_in=60.0)
    late = [ready.id, scheduled.id]
    assert set(eventually(lambda: (found := run(duties.expire)) and found)) <= set(late)
    eventually(lambda: run(duties.expire) or all(run(job, id).state == "cancelled" for id in late))
    assert [one.id for one in take(run, 9)] == [kept.id]
    with pytest.raises(JobCancelled, match="Expired"):
        app.result(ready.id, timeout=5)
    assert run(history, ready.id)[0] == [], "it never ran"


def test_an_expired_job_is_not_claimed_even_before_the_sweep(run: Run, database: Database) -> None:
    """R060: the claim itself looks at the clock."""
    (job,) = put(run, expires_in=0.000001)
    eventually(lambda: run(clock) > job.created_at.timestamp() + 0.002)
    assert take(run, 9) == []
    assert states(database) == ["ready"]


def test_expiry_does_not_touch_a_job_that_started_in_time(run: Run) -> None:
    """R060"""
    held = put_and_take(run, expires_in=0.3)
    eventually(lambda: run(clock) > held.created_at + 0.35)
    assert run(duties.expire) == []
    assert end(run, held).lost == []


def test_a_paused_queue_starts_nothing_and_lets_the_rest_go_on(
    run: Run, database: Database, store: Store
) -> None:
    """R119: claims stop at once, running jobs finish, a restart changes nothing."""
    running = put_and_take(run)
    put(run, 2)
    put(run, 1, queue="other")
    run(job_actions.set_paused, "default", True, "ann")
    assert take(run, 9) == []
    assert run(poll).queues == ["other"]
    assert len(take(run, 9, queue="other")) == 1
    assert end(run, running).lost == []
    again = open_store(database.url, database.schema)
    assert take(again.run, 9) == []
    again.close()
    run(job_actions.set_paused, "default", False, "ann")
    assert len(take(run, 9)) == 2


def test_looking_sees_every_queue_once_and_what_is_due(run: Run, database: Database) -> None:
    """R016: what an idle worker's poll finds, without any wake-up."""
    assert run(poll).queues == []
    for queue in ("a", "b", "b", "c"):
        put(run, 2, queue=queue)
    put(run, delay=60.0, queue="z")
    seen = run(poll)
    assert (sorted(seen.queues), seen.due) == (["a", "b", "c"], False)
    make_due(database)
    assert run(poll).due
    run(promote)
    seen = run(poll)
    assert (sorted(seen.queues), seen.due) == (["a", "b", "c", "z"], False)


def test_named_queues_are_looked_up_alone(run: Run, database: Database) -> None:
    """R216: what others keep in their queues is not even read."""
    for queue in ("a", "b"):
        put(run, 2, queue=queue)
    put(run, delay=60.0, queue="z")
    assert run(poll_queues, ["b", "x", "z"]) == PendingQueues(["b"], due=False)
    make_due(database)
    assert run(poll_queues, ["x"]) == PendingQueues([], due=True)
    run(job_actions.set_paused, "b", True, "ann")
    assert run(poll_queues, ["b"]).queues == []


def test_many_are_released_in_one_go(run: Run, database: Database) -> None:
    put(run, 200)
    held = take(run, 200)
    finished = run(finish, [ending(one, "released") for one in held])
    assert len(finished.accepted) == 200
    assert set(states(database)) == {"ready"}
