"""A call becomes a row: what was asked for, all of it or nothing, and only once."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from outlast import InvalidArguments, InvalidOption, KeyConflict, Outlast, StoreError
from outlast.model.errors import Contention
from outlast.model.ids import new_job_id
from outlast.ops.enqueue import enqueue
from outlast.ops.operation import BEGIN
from outlast.ops.report import clock, job
from tests.store.conftest import Run
from tests.store.jobs import column, make_due, new, put, states, take
from tests.support import Database, eventually
from tests.support.databases import KINDS

pytestmark = pytest.mark.kinds(*KINDS)


def test_jobs_are_answered_in_the_order_asked(run: Run) -> None:
    asked = [new(args=json.dumps({"n": n}), key=f"k{n % 7}" if n % 2 else None) for n in range(20)]
    asked = [one for one in asked if one.key is None] + asked[1:14:2]
    made = run(enqueue, asked)
    assert [one.id for one in made] == [one.id for one in asked]
    assert [one.args for one in made] == [json.loads(one.args) for one in asked]


def test_the_answer_is_what_stands_in_the_row(run: Run) -> None:
    """R012: all that was said is durable before the answer, and the answer says the same."""
    asked = new(
        tenant="acme", queue="docs", task="extract", args='{"doc": [1, "é\\u2603", null]}',
        priority=7, max_attempts=9, max_crashes=2, key="doc-1", delay=60.0, expires_in=3600.0,
        timeout=12.5, trace="00-abc-def-01",
    )  # fmt: skip
    (made,) = run(enqueue, [asked])
    stored = run(job, asked.id)
    assert made == stored
    assert stored.args == {"doc": [1, "é☃", None]}
    assert (stored.tenant, stored.queue, stored.task) == ("acme", "docs", "extract")
    assert (stored.priority, stored.max_attempts, stored.max_crashes) == (7, 9, 2)
    assert (stored.key, stored.timeout, stored.trace) == ("doc-1", 12.5, "00-abc-def-01")
    assert (stored.attempt, stored.fence, stored.worker, stored.result) == (0, 0, None, None)
    assert stored.expires_at is not None
    assert (stored.expires_at - stored.created_at).total_seconds() == pytest.approx(3600, abs=0.01)
    assert (stored.run_at - stored.created_at).total_seconds() == pytest.approx(60, abs=0.01)


@pytest.mark.parametrize("how", ["delay", "at"])
def test_a_delayed_job_is_not_claimed_before_its_time(run: Run, how: str) -> None:
    """R151: run_at stands in the row; never before it, and soon after."""
    said = {"delay": 0.4} if how == "delay" else {"at": run(clock) + 0.4}
    (made,) = put(run, **said)
    assert made.state == "scheduled"
    assert take(run) == []
    (claimed,) = eventually(lambda: take(run))
    assert claimed.id == made.id
    assert claimed.run_at <= claimed.started_at <= claimed.run_at + 5


def test_a_moment_in_the_past_is_now(run: Run) -> None:
    (made,) = put(run, at=run(clock) - 100)
    assert made.state == "ready"
    assert len(take(run)) == 1


def test_a_second_submit_of_the_same_job_is_the_same_job(run: Run, database: Database) -> None:
    """R004: ids are made by the client, so sending a call twice cannot make two jobs."""
    asked = [new(), new(key="k")]
    first = run(enqueue, asked)
    assert run(enqueue, asked) == first
    assert len(states(database)) == 2


def test_a_key_that_stands_answers_with_its_job(run: Run, database: Database) -> None:
    """R003: the loser gets the winner's id, whatever has become of that job."""
    (winner,) = put(run, key="k", args='{"a": 1, "b": 2}')
    take(run)
    (loser,) = put(run, key="k", args='{"b": 2, "a": 1}')
    assert loser.id == winner.id
    assert loser.state == "running"
    (other_tenant,) = put(run, key="k", tenant="other")
    (other_queue,) = put(run, key="k", queue="other")
    assert len({winner.id, other_tenant.id, other_queue.id}) == len(states(database)) == 3


@pytest.mark.parametrize("other", [{"args": '{"n": 2}'}, {"task": "other"}])
def test_a_key_used_for_another_call_is_a_conflict(
    run: Run, database: Database, other: dict[str, Any]
) -> None:
    """R003: and everything else in that call is undone with it."""
    (winner,) = put(run, key="k", args='{"n": 1}')
    with pytest.raises(KeyConflict, match=winner.id) as caught:
        run(enqueue, [new(), new(**{"key": "k", "args": '{"n": 1}'} | other), new()])
    assert caught.value.facts["key"] == "k"
    assert column(database, "CAST(id AS text)") == [winner.id]


def test_twins_in_one_call_are_one_job(run: Run, database: Database) -> None:
    """R008: jobs of one call that share a key are one row, answered twice."""
    first, second = run(enqueue, [new(key="k"), new(key="k")])
    assert first == second
    assert len(states(database)) == 1


def test_unequal_twins_in_one_call_are_a_conflict(run: Run, database: Database) -> None:
    with pytest.raises(KeyConflict):
        run(enqueue, [new(key="k", args="[1]"), new(key="k", args="[2]"), new()])
    assert states(database) == []


def test_ten_thousand_jobs_in_one_call(run: Run, database: Database) -> None:
    """R008: one call, one answer for each."""
    asked = [new(args=json.dumps({"n": n})) for n in range(10_000)]
    made = run(enqueue, asked)
    assert [one.id for one in made] == [one.id for one in asked]
    assert len(states(database)) == 10_000


def test_one_row_that_the_database_refuses_leaves_none(run: Run, database: Database) -> None:
    """R005, R008, R037: all of a call's jobs, or none; a priority out of range is refused."""
    with pytest.raises(StoreError):
        run(enqueue, [new(), new(priority=101), new()])
    with pytest.raises(StoreError):
        run(enqueue, [new(), new(key="k"), new(tenant="")])
    assert states(database) == []
    assert len(put(run)) == 1, "the connection is fine afterwards"


def test_nothing_is_nothing(run: Run, database: Database) -> None:
    assert run(enqueue, []) == []
    assert states(database) == []


def test_invalid_calls_are_refused_with_every_problem_and_store_nothing(
    verb: Run, app: Outlast, database: Database
) -> None:
    """R005: the error lists all problems of all jobs of the call."""

    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    app.store.ready()
    with pytest.raises(InvalidArguments) as caught:
        verb("enqueue", add.job(a=1, b=2), add.job(a="x", b="y"), add.job(a=1, b=[]))
    assert len(caught.value.problems) == 3
    assert {problem.path.rpartition(" ")[2] for problem in caught.value.problems} == {"a", "b"}
    assert states(database) == []


@pytest.mark.kinds("sqlite")
@pytest.mark.parametrize(
    "bad",
    [
        {"priority": 101}, {"priority": -101}, {"priority": 1.5}, {"delay": -1}, {"queue": ""},
        {"tenant": ""}, {"key": "a\x00b"}, {"at": datetime(2030, 1, 1)}, {"expires": 0},
        {"delay": float("nan")}, {"max_attempts": 0}, {"timeout": 0},
        {"delay": 1, "at": datetime(2030, 1, 1, tzinfo=UTC)},
    ],
    ids=str,
)  # fmt: skip
def test_an_option_out_of_range_is_refused_at_the_door(app: Outlast, bad: dict[str, Any]) -> None:
    """R037, R005"""

    @app.task
    def work() -> None: ...

    with pytest.raises(InvalidOption):
        work.using(**bad).enqueue()


def test_options_reach_the_row(verb: Run, app: Outlast, database: Database) -> None:
    @app.task(queue="docs", priority=3, timeout=60)
    def work(n: int) -> None: ...

    soon = datetime.now(UTC) + timedelta(hours=1)
    calls = [
        work.using(tenant="acme", priority=5, key="k", at=soon).job(1),
        work.using(queue="slow", delay=timedelta(minutes=1), expires=soon).job(n=2),
    ]
    first, second = verb("enqueue", *calls)
    assert (first.queue, first.priority, first.tenant, first.key) == ("docs", 5, "acme", "k")
    assert abs(first.run_at - soon) < timedelta(milliseconds=1)
    assert (second.queue, second.priority, second.timeout) == ("slow", 3, 60.0)
    assert second.expires_at is not None and abs(second.expires_at - soon) < timedelta(seconds=1)
    assert (first.args, second.args) == ({"n": 1}, {"n": 2})
    assert states(database) == ["scheduled", "scheduled"]
    make_due(database)
    assert verb("job", second.id) == verb("jobs", queue="slow")[0]


def test_a_key_whose_holder_vanishes_meanwhile_is_tried_again() -> None:
    """R003: refused for a key, and the holder pruned before we could read it: no false conflict."""
    asked = new(key="k", id=new_job_id())
    operation = enqueue([asked])
    assert operation.send(None) is BEGIN
    assert operation.send(None).name == "insert_jobs"
    assert operation.send([]).name == "existing_jobs"
    with pytest.raises(Contention):
        operation.send([])
