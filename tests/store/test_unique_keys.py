"""Unique keys: at most one job of a key waits, is active, or is made in a period."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from outlast import KeyConflict, TooLate
from outlast.model.job import Job, NewJob
from outlast.ops import audit, job_actions, retention
from outlast.ops.bulk import redrive_some
from outlast.ops.enqueue import enqueue
from outlast.ops.reclaim import reclaim
from outlast.store import Store
from tests.store.conftest import Run
from tests.store.crowd import all_at_once, interposed, run_together
from tests.store.jobs import column, end, end_leases, make_due, new, states, table, take
from tests.support import Database
from tests.support.databases import KINDS

pytestmark = pytest.mark.kinds(*KINDS)
MODES = {"waiting": None, "active": None, "period": 600.0}
each_mode = pytest.mark.parametrize("mode", MODES)
QUEUED = {"waiting", "scheduled", "ready"}


def unique(mode: str, key: str = "k", **said: Any) -> NewJob:
    return new(key=key, unique_mode=mode, unique_span=said.pop("span", MODES[mode]), **said)


def submit(run: Run, mode: str, **said: Any) -> Job:
    (job,) = run(enqueue, [unique(mode, **said)])
    return job


@pytest.mark.slow_on("sqlite")
@each_mode
@pytest.mark.kinds("sqlite", "postgres")
@pytest.mark.parametrize("times", [10, pytest.param(100, marks=pytest.mark.campaign)])
def test_thousands_of_submits_of_one_key_are_one_job(
    store: Store, database: Database, mode: str, times: int
) -> None:
    """R150, R242: 100 threads, 100 submits each; every answer is the winner."""

    def submit_often(_: int) -> set[str]:
        return {submit(store.run, mode).id for _ in range(times)}

    answers = all_at_once(100, submit_often)
    assert set().union(*answers) == set(column(database, "CAST(id AS text)"))
    assert len(states(database)) == 1


@each_mode
def test_a_hundred_tasks_of_one_loop_get_one_job(
    store: Store, database: Database, mode: str
) -> None:
    answers = run_together(store, "asyncio", [(enqueue, ([unique(mode)],)) for _ in range(100)])
    assert [job.id for (job,) in answers] == column(database, "CAST(id AS text)") * 100


@pytest.mark.kinds("sqlite", "postgres")
@pytest.mark.parametrize(("mode", "freed"), [("waiting", "started_at"), ("active", "finished_at")])
def test_beside_workers_no_two_jobs_of_a_key_overlap(
    store: Store, database: Database, mode: str, freed: str
) -> None:
    """R150, R242: by the history, each job was made after the one before it was out of the way."""
    left = Counter({"producers": 20})

    def act(n: int) -> None:
        if n >= 20:
            while left["producers"]:
                for claim in take(store.run, worker=f"w{n}"):
                    end(store.run, claim)
            return
        for _ in range(20):
            submit(store.run, mode)
        left["producers"] -= 1

    all_at_once(24, act)
    for claim in take(store.run, 10):
        end(store.run, claim)
    jobs = table(database, "job")
    rows = database.rows(f"SELECT created_at, {freed} FROM {jobs} ORDER BY created_at")
    assert len(rows) > 1
    assert all(after[0] >= before[1] for before, after in pairwise(rows))


@each_mode
def test_a_key_is_taken_for_one_tenant_and_queue(run: Run, mode: str) -> None:
    jobs = [submit(run, mode), submit(run, mode, tenant="b"), submit(run, mode, queue="b")]
    assert len({job.id for job in jobs}) == 3
    assert submit(run, mode).id == jobs[0].id
    with pytest.raises(KeyConflict, match="of task 'work': use another key for 'other'"):
        submit(run, mode, task="other")


def test_unique_while_waiting_lets_one_wait_beside_the_running_one(run: Run) -> None:
    """R242."""
    first = submit(run, "waiting")
    assert submit(run, "waiting", args='{"n": 2}').id == first.id
    take(run)
    second = submit(run, "waiting")
    assert second.id != first.id and submit(run, "waiting").id == second.id
    assert submit(run, "active").id == second.id  # the one made last under the key


@pytest.mark.kinds("postgres")
def test_a_holder_that_starts_while_it_is_looked_at_is_none(store: Store) -> None:
    """The call's own job comes after it: one that has started may not see what the caller wrote."""
    first, wanted = submit(store.run, "waiting"), [unique("waiting")]
    (second,) = store.run(
        lambda: interposed(enqueue(wanted), "hold_waiting", lambda: take(store.run))
    )
    assert second.id == wanted[0].id != first.id


@pytest.mark.parametrize("back", ["released", "failed", "reclaimed", "redriven"])
def test_a_job_goes_back_to_its_queue_beside_a_newer_one_of_its_key(
    run: Run, database: Database, back: str
) -> None:
    """R242: a rescue neither fails, nor is lost, nor stands in the way of anybody."""
    first = submit(run, "waiting")
    (claim,) = take(run)
    second = submit(run, "waiting")
    if back == "reclaimed":
        end_leases(database)
        run(reclaim)
    elif back == "redriven":
        end(run, claim, "permanent")
        run(job_actions.redrive_one, claim.id, "bob")
    else:
        end(run, claim, back)
    assert Counter(states(database)).keys() <= QUEUED
    assert submit(run, "waiting").id == second.id
    make_due(database)
    claims = take(run, 10)
    assert {claim.id for claim in claims} == {first.id, second.id}
    for claim in claims:
        end(run, claim)
    assert states(database) == ["succeeded"] * 2


@pytest.mark.parametrize("back", ["released", "failed", "reclaimed", "redriven"])
def test_unique_while_active_is_one_until_it_ends(run: Run, database: Database, back: str) -> None:
    """R150: running, released, retried, reclaimed or redriven, it is the one."""
    first = submit(run, "active")
    (claim,) = take(run)
    assert submit(run, "active").id == first.id
    if back == "reclaimed":
        end_leases(database)
        run(reclaim)
    elif back == "redriven":
        end(run, claim, "permanent")
        run(job_actions.redrive_one, claim.id, "bob")
    else:
        end(run, claim, back)
    assert submit(run, "active").id == first.id
    make_due(database)
    end(run, *take(run))
    second = submit(run, "active")
    assert second.id != first.id and states(database) == ["succeeded", "ready"]


def test_a_redrive_does_not_make_a_second_active_job(run: Run, database: Database) -> None:
    """R150: the dead one stays dead, and the operator gets the reason."""
    first = submit(run, "active")
    end(run, *take(run), "permanent")
    second = submit(run, "active")
    with pytest.raises(TooLate, match=f"unique while active, and job {second.id}"):
        run(job_actions.redrive_one, first.id, "bob")
    _, count = run(redrive_some, [first.id], "dead", "bob", "")
    assert count == 0 and count.left == {"key held by another job": 1}
    end(run, *take(run), "permanent")
    revived, count = run(redrive_some, [second.id, first.id], "dead", "bob", "")
    assert revived == {second.id} and count.left == {"key held by another job": 1}
    assert submit(run, "active").id == second.id
    assert states(database) == ["dead", "ready"]


def test_a_period_begins_with_its_job_and_ends_by_the_clock(run: Run, database: Database) -> None:
    """R242: ended or not, one job; then the next. A clock that steps back starts over."""
    first = submit(run, "period")
    end(run, *take(run))
    assert submit(run, "period").id == first.id
    shift_keys(database, -601)
    second = submit(run, "period")
    assert second.id != first.id
    shift_keys(database, +601)  # the clock has stepped back since
    assert submit(run, "period").id not in (first.id, second.id)


def shift_keys(database: Database, seconds: float) -> None:
    """As if the clock had gone on, or back, since the keys were taken."""
    table = f"{database.schema}_unique_key" if database.is_sqlite else "unique_key"
    later = seconds if database.is_sqlite else f"interval '{seconds} seconds'"
    database.rows(f"UPDATE {table} SET taken_at = taken_at + {later}")


def test_a_call_with_many_keys_gets_one_job_for_each(run: Run, database: Database) -> None:
    (held,) = run(enqueue, [unique("waiting", "b")])
    plain = new(key="a")
    jobs = [unique("waiting", "a"), plain, unique("active", "b"), new(), unique("waiting", "a")]
    made = run(enqueue, jobs)
    assert [job.id for job in made] == [
        jobs[0].id, plain.id, held.id, jobs[3].id, jobs[0].id
    ]  # fmt: skip
    assert len(states(database)) == 4
    assert run(enqueue, jobs)[0].id == jobs[0].id  # sent again, after its answer was lost


def test_batches_that_overlap_never_deadlock(store: Store, database: Database) -> None:
    """R008: whatever their order, one job for each key."""
    keys = [f"k{n}" for n in range(100)]
    batches = [
        [unique("active", key) for key in (keys if n % 2 else reversed(keys))] for n in range(8)
    ]
    run_together(store, "blocking", [(enqueue, (batch,)) for batch in batches])
    assert sorted(column(database, "key")) == sorted(keys)


def test_a_pruned_job_leaves_no_key_behind(run: Run, database: Database) -> None:
    first = submit(run, "active")
    end(run, *take(run))
    run(retention.prune, "succeeded", -1.0, 10)
    table = f"{database.schema}_unique_key" if database.is_sqlite else "unique_key"
    assert database.rows(f"SELECT count(*) FROM {table}") == [(0,)]
    assert submit(run, "active").id != first.id


def test_the_audit_removes_a_key_whose_job_is_gone(run: Run, database: Database) -> None:
    """A call that was rolled back held the key while its last job was pruned."""
    kept, lost = submit(run, "active"), submit(run, "active", key="lost")
    where = f"id = '{lost.id}'"
    database.rows(f"DELETE FROM {table(database, 'job')} WHERE {where}")
    gone, _ = run(audit.dangling_rows, "unique keys", audit.LOWEST_ID)
    assert gone == [lost.id]
    assert run(audit.delete_dangling("unique keys"), [kept.id, lost.id]) == 1
    assert submit(run, "active").id == kept.id


def test_a_plain_enqueue_knows_nothing_of_unique_keys(run: Run) -> None:
    """A feature that is not used costs no statement."""

    def statements(jobs: list[NewJob]) -> list[str]:
        operation, sent = enqueue(jobs), []
        with pytest.raises(StopIteration):
            step = next(operation)
            while True:
                sent.append(getattr(step, "name", "BEGIN"))
                made = [(job.id, "ready", 0.0, 0.0, None, None) for job in jobs]
                step = operation.send(made if sent[-1] == "insert_jobs" else [(0.0, None)])
        return sent

    assert statements([new(), new()]) == ["insert_jobs"]
    assert statements([new()]) == ["insert_job"]
    assert statements([new(key="k")]) == ["BEGIN", "insert_jobs"]
