"""Operators change many jobs that have not started: moment, priority, queue; all on record."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from outlast import InvalidOption, Outlast
from outlast.model.bulk_count import KEY_TAKEN
from outlast.model.job_change import JobChange
from outlast.model.lane import QueueLimits
from outlast.ops.access import Access
from outlast.ops.bulk import change_some
from outlast.ops.limits import declare
from tests.store.callers import Psycopg
from tests.store.conftest import Run
from tests.store.jobs import column, end, make_due, put, table, take
from tests.support import Database, eventually

pytestmark = pytest.mark.kinds("sqlite", "postgres")


def recorded(database: Database, kind: str) -> list[dict[str, object]]:
    text = "data" if database.is_sqlite else "CAST(data AS text)"
    query = (
        f"SELECT {text} FROM {table(database, 'event')} WHERE kind = '{kind}' AND job IS NOT NULL"
    )
    return [json.loads(data) for (data,) in database.rows(query)]


def test_ready_jobs_are_put_off_and_scheduled_ones_brought_forward(
    app: Outlast, verb: Run, database: Database
) -> None:
    put(app.store.run, number=600)
    put(app.store.run, delay=900.0, task="other")
    later = datetime.now(UTC) + timedelta(hours=2)
    done = verb("reschedule_all", at=later, state="ready")
    assert done == 600 and done.left == {}
    assert column(database, "state") == ["scheduled"] * 601
    assert take(app.store.run, 10) == []
    assert verb("reschedule_all", delay=0, task="work") == 600
    assert column(database, "state").count("ready") == 600
    told = recorded(database, "reschedule")
    assert len(told) == 1200 and {"by", "at"} == told[0].keys()


def test_a_raised_priority_is_claimed_first(app: Outlast, verb: Run) -> None:
    first, second = (put(app.store.run, task=task)[0] for task in ("a", "b"))
    assert verb("prioritize_all", 7, task="b") == 1
    assert [claim.id for claim in take(app.store.run, 2)] == [second.id, first.id]
    assert app.job(second.id).priority == 7


def test_moved_jobs_run_in_their_new_queue(app: Outlast, verb: Run, database: Database) -> None:
    run = app.store.run
    put(run, number=3)
    put(run, key="k")
    put(run, key="k", queue="bulk")
    put(run, key="u", unique_mode="active")
    done = verb("move_all", "bulk", queue="default")
    assert done == 3
    assert done.left == {"key held by another job": 1, "unique in its queue": 1}
    assert len(take(run, 10, queue="bulk")) == 4 and len(take(run, 10)) == 2
    assert {one["queue"] for one in recorded(database, "move")} == {"bulk"}


def test_a_job_moved_to_a_limited_queue_has_a_lane_and_back_none(
    app: Outlast, database: Database
) -> None:
    app.queue("mail", lane="tenant", lane_running=1)
    put(app.store.run, tenant="acme")
    app._declare_queues()
    assert app.move_all("mail", queue="default") == 1
    assert column(database, "lane") == ["acme"]
    assert app.move_all("default", queue="mail") == 1
    assert column(database, "lane") == [None]


def test_a_job_moved_among_tenants_lanes_is_in_its_own(app: Outlast, database: Database) -> None:
    """R145: the name of its lane elsewhere may be another tenant's."""
    app.queue("fair", lane="tenant")
    app._declare_queues()
    put(app.store.run, tenant="acme", lane="other")
    assert app.move_all("fair", queue="default") == 1
    assert column(database, "lane") == ["acme"]


def test_jobs_are_moved_to_another_lane_of_their_queue(
    app: Outlast, verb: Run, database: Database
) -> None:
    """Also those that are unique there; on record. A queue without limits has no lanes."""
    app.queue("mail", lane_running=1)
    app._declare_queues()
    run = app.store.run
    put(run, 3, queue="mail", lane="a")
    put(run, queue="mail", lane="a", key="u", unique_mode="active")
    put(run, queue="plain")
    assert verb("move_all", lane="b", queue="mail") == 4
    assert column(database, "lane", "WHERE queue = 'mail'") == ["b"] * 4
    assert {one["lane"] for one in recorded(database, "move")} == {"b"}
    done = verb("move_all", lane="b", queue="plain")
    assert done == 0 and done.left == {"in a queue without lanes": 1}


def test_jobs_that_started_or_ended_meanwhile_are_left_alone(run: Run, database: Database) -> None:
    """R231: what is changed is decided by the row."""
    ids = [job.id for job in put(run, number=3)]
    started, ended = take(run, 2)
    end(run, ended)
    run(declare, [QueueLimits("default", lane_running=9)], "test")
    into_lane = JobChange.move(None, "x")
    for change in (
        JobChange.reschedule(60, None), JobChange.prioritize(3), into_lane, JobChange.move("x"),
    ):  # fmt: skip
        done = run(change_some, ids, "ready", change, "bob")
        make_due(database)
        run_ready(database)
        assert done == 1 and done.left == {"running": 1, "succeeded": 1}
    assert column(database, "queue", f"WHERE id = '{started.id}'") == ["default"]


def run_ready(database: Database) -> None:
    jobs = table(database, "job")
    database.rows(f"UPDATE {jobs} SET state = 'ready' WHERE state = 'scheduled'")


def test_jobs_out_of_reach_are_left_alone(run: Run, database: Database) -> None:
    mine, theirs = run_enqueue(run)
    change = JobChange.prioritize(5)
    assert run(change_some, [mine, theirs], "ready", change, "bob", Access("acme")) == 1
    assert sorted(column(database, "priority")) == [0, 5]


def run_enqueue(run: Run) -> list[str]:
    return [put(run, tenant=tenant)[0].id for tenant in ("acme", "other")]


def test_bad_changes_are_refused(app: Outlast) -> None:
    for name, given, said in [
        ("reschedule_all", {}, "The option delay or at must be given"),
        ("reschedule_all", {"delay": 1, "state": "running"}, "must be one of scheduled, ready"),
        ("prioritize_all", {"priority": 101}, "must be a whole number from -100 to 100"),
        ("move_all", {"to": "a", "queue": "a"}, "must name the queue that the jobs leave"),
        ("move_all", {"to": "", "queue": "a"}, "must be 1 to 200 characters"),
        ("move_all", {"queue": "a"}, "must be the name of a queue; or give a lane, and not both"),
        ("move_all", {"to": "b", "lane": "b", "queue": "a"}, "and not both"),
        ("move_all", {"lane": "", "queue": "a"}, "must be 1 to 200 characters"),
        ("move_all", {"lane": "b", "queue": None}, "must name the queue that the jobs leave"),
    ]:
        with pytest.raises(InvalidOption, match=said):
            getattr(app, name)(**given)


@pytest.mark.kinds("postgres")
def test_a_job_whose_key_is_being_taken_in_the_other_queue_stays(
    app: Outlast, database: Database
) -> None:
    """The other job commits while the move waits for it."""

    @app.task
    def work() -> None: ...

    work.using(key="k").enqueue()
    caller = Psycopg(database)
    caller.enqueue(app, work.using(key="k", queue="bulk").job())
    with ThreadPoolExecutor(1) as thread:
        moving = thread.submit(app.move_all, "bulk", queue="default")
        waits = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        eventually(lambda: database.rows(waits) != [(0,)])
        caller.commit()
        done = moving.result(30)
    caller.close()
    assert done == 0 and done.left == {KEY_TAKEN: 1}
