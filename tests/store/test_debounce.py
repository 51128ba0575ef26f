"""Debounce: calls of one key become one job, which has the last call's arguments."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from outlast import KeyConflict
from outlast.model.job import Job, NewJob
from outlast.ops.enqueue import enqueue
from outlast.ops.operation import Op
from outlast.ops.report import job
from outlast.ops.steps import keep
from outlast.store import Store
from tests.store.conftest import Run
from tests.store.crowd import all_at_once, interposed
from tests.store.jobs import column, end, make_due, new, set_all, states, table, take
from tests.support import Database
from tests.support.databases import KINDS

pytestmark = pytest.mark.kinds(*KINDS)


def debounced(n: int, key: str = "doc", wait: float = 5.0, **said: Any) -> NewJob:
    args = json.dumps({"n": n})
    facts = {"unique_mode": "debounce", "unique_span": wait, "delay": wait, "max_wait": 60.0}
    return new(key=key, args=args, **(facts | said))


def submit(run: Run, n: int, **said: Any) -> Job:
    (made,) = run(enqueue, [debounced(n, **said)])
    return made  # type: ignore[no-any-return]


def waited(job: Job) -> float:
    return (job.run_at - job.created_at).total_seconds()


def shift(database: Database, seconds: float) -> None:
    """As if so much time had passed since the calls that came so far; less than none: as if the
    clock had stepped back."""
    past = seconds if database.is_sqlite else f"interval '{seconds} seconds'"
    database.rows(f"UPDATE {table(database, 'unique_key')} SET taken_at = taken_at - {past}")
    set_all(database, f"run_at = run_at - {past}, created_at = created_at - {past}")


def test_the_last_call_gives_arguments_and_moment(run: Run, database: Database) -> None:
    """R242: five seconds after the last call, one job."""
    first = submit(run, 1)
    shift(database, 4)
    second = submit(run, 2)
    assert second.id == first.id and second.args == {"n": 2} and second.state == "scheduled"
    assert 8.9 < waited(second) < 30
    assert column(database, "args" if database.is_sqlite else "args ->> 'n'") in (
        ['{"n": 2}'], ["2"]
    )  # fmt: skip


def test_calls_that_never_stop_put_it_off_no_longer_than_max_wait(
    run: Run, database: Database
) -> None:
    submit(run, 1)
    for n in range(2, 14):
        shift(database, 4.9)
        last = submit(run, n)
        assert waited(last) < 60.1
    assert abs(waited(last) - 60) < 0.1
    shift(database, 10)
    late = submit(run, 99)
    assert late.id == last.id and late.state == "ready" and late.args == {"n": 99}


def test_a_clock_that_steps_back_delays_it_by_one_max_wait(run: Run, database: Database) -> None:
    first = submit(run, 1)
    shift(database, -3600)
    for n in range(2, 16):
        assert submit(run, n).id == first.id
        shift(database, 4.9)
    assert submit(run, 99).state == "ready"


def test_a_job_that_has_started_keeps_its_arguments(run: Run, database: Database) -> None:
    first = submit(run, 1)
    make_due(database)
    (claim,) = take(run)
    second = submit(run, 2)
    assert second.id != first.id and claim.args == '{"n": 1}'
    end(run, claim, "released")  # it neither fails nor takes the key back
    assert submit(run, 3).id == second.id
    assert sorted(states(database)) == ["ready", "scheduled"]


@pytest.mark.kinds("postgres")
def test_a_job_that_starts_while_it_is_replaced_keeps_its_arguments(
    store: Store, database: Database
) -> None:
    first = submit(store.run, 1)
    make_due(database)
    claims: list[Any] = []

    def start() -> None:
        claims.extend(take(store.run))

    (second,) = store.run(lambda: interposed(enqueue([debounced(2)]), "replace_waiting", start))
    assert [claim.id for claim in claims] == [first.id] and second.id != first.id
    assert store.run(job, first.id).args == {"n": 1}


def test_a_job_that_waits_for_a_retry_gets_the_call_and_keeps_its_backoff(
    run: Run, database: Database
) -> None:
    """Calls during an outage do not pile up, and results of steps are not those of other calls."""
    first = submit(run, 1)
    make_due(database)
    (claim,) = take(run)
    run(keep, claim, "fetch", '"old"')
    end(run, claim, "failed")
    before = column(database, "run_at")
    again = submit(run, 2)
    assert again.id == first.id and again.args == {"n": 2}
    assert column(database, "run_at") == before
    assert database.rows(f"SELECT count(*) FROM {table(database, 'step')}") == [(0,)]


@pytest.mark.kinds("sqlite", "postgres")
def test_many_calls_at_once_are_one_job_of_one_of_them(store: Store, database: Database) -> None:
    """R242: 100 threads; arguments and moment are of the same call."""

    def call(n: int) -> None:
        for m in range(3):
            submit(store.run, 3 * n + m, wait=1000.0 * (3 * n + m + 1), max_wait=None)

    all_at_once(100, call)
    (id,) = column(database, "CAST(id AS text)")
    made = store.run(job, id)
    assert 0 <= waited(made) - 1000 * (made.args["n"] + 1) < 900


@pytest.mark.slow_on("sqlite")
@pytest.mark.kinds("sqlite", "postgres")
def test_beside_workers_no_call_is_lost(store: Store, database: Database) -> None:
    """The last call's arguments run after it, whatever was claimed meanwhile."""
    seen: list[int] = []
    left = {"producers": 10}

    def act(n: int) -> None:
        if n < 10:
            for m in range(20):
                submit(store.run, m * 10 + n, wait=0.001)
            left["producers"] -= 1
            return
        while left["producers"]:
            for claim in take(store.run, worker=f"w{n}"):
                seen.append(json.loads(claim.args)["n"])
                end(store.run, claim)

    all_at_once(12, act)
    last = submit(store.run, 10_000, wait=0.001)
    make_due(database)
    claims = take(store.run, 10)
    assert [json.loads(claim.args)["n"] for claim in claims if claim.id == last.id] == [10_000]
    for claim in claims:
        end(store.run, claim)
    assert set(states(database)) == {"succeeded"}
    assert len(seen) == len(set(seen))


def test_the_last_of_many_calls_in_one_batch_counts(run: Run) -> None:
    jobs = [debounced(1), debounced(2, key="other"), debounced(3)]
    made = run(enqueue, jobs)
    assert [job.id for job in made] == [jobs[2].id, jobs[1].id, jobs[2].id]
    assert made[0].args == {"n": 3}
    with pytest.raises(KeyConflict, match="use another key for 'other'"):
        run(enqueue, [debounced(4, task="other")])


@pytest.mark.kinds("postgres")
def test_batches_that_overlap_never_deadlock(store: Store, database: Database) -> None:
    """One call finds a job that waits, another one finds it started; both need a second key."""
    submit(store.run, 1, key="b")
    make_due(database)
    tries: list[str] = []
    started = threading.Event()

    def other() -> Op[list[Job]]:
        tries.append("other")
        return (yield from enqueue([debounced(3, key) for key in "ab"]))

    def overtake() -> None:
        take(store.run)
        thread.start()
        started.wait(0.5)  # never set: time for the other call to lock what it can

    def first() -> Op[list[Job]]:
        tries.append("first")
        calls = enqueue([debounced(2, key) for key in "ab"])
        return (yield from interposed(calls, "replace_waiting", overtake))

    thread = threading.Thread(target=store.run, args=(other,))
    store.run(first)
    thread.join(30)
    assert sorted(tries) == ["first", "other"]  # neither was a deadlock's victim
    assert sorted(column(database, "key")) == ["a", "b", "b"]
