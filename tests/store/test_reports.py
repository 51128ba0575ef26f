"""What there is to see: pages that hold still, one answer on every path, a history without gaps."""

from __future__ import annotations

import random
from collections import Counter
from itertools import product

import pytest

from outlast import InvalidOption, JobNotFound, Outlast
from outlast.model.lifecycle import State
from outlast.ops import job_actions, report
from outlast.ops import workers as worker_ops
from outlast.ops.enqueue import enqueue
from outlast.ops.explain import explain
from outlast.ops.finish import finish
from outlast.ops.reclaim import reclaim
from outlast.ops.report import Filter, history, job, jobs
from outlast.store import Store
from tests.store.conftest import Run
from tests.store.jobs import (
    end,
    end_leases,
    ending,
    make_due,
    new,
    put,
    put_and_take,
    set_all,
    states,
    table,
    take,
)
from tests.support import Database


def test_pages_hold_still_while_jobs_arrive_and_go(run: Run) -> None:
    """R166: every job that was there is seen once, newest first, whatever comes meanwhile."""
    there = [one.id for one in put(run, 500)]
    seen: list[str] = []
    cursor = None
    while page := run(jobs, Filter(), cursor, 37):
        seen += [one.id for one in page]
        cursor = page[-1].id
        put(run, 5)
        for held in take(run, 3):
            end(run, held)
    assert seen == there[::-1]


def test_filters_fit(run: Run) -> None:
    """R166: any of them together."""
    kinds = list(product(("a", "b"), ("x", "y"), ("acme", "zen")))
    made = run(enqueue, [new(queue=q, task=t, tenant=n) for q, t, n in kinds * 3])
    for held in take(run, 4, queue="a"):
        end(run, held, "permanent")
    every = [run(job, one.id) for one in made]
    for state, queue, task, tenant in product(
        (None, "ready", "dead", "running"), (None, "a"), (None, "x"), (None, "zen", "nobody")
    ):
        chosen = Filter(state, queue, task, tenant)
        fitting = [
            one
            for one in reversed(every)
            if state in (None, one.state)
            and queue in (None, one.queue)
            and task in (None, one.task)
            and tenant in (None, one.tenant)
        ]
        assert run(jobs, chosen, None, 1000) == fitting, chosen
        assert run(report.count, chosen) == len(fitting)


def test_every_path_tells_the_same_state(verb: Run, app: Outlast, database: Database) -> None:
    """R167: one source of truth."""
    run = app.store.run
    ends = {"succeeded": "succeeded", "permanent": "dead", "cancelled": "cancelled"}
    for outcome in ends:
        end(run, put_and_take(run, queue="q"), outcome)
    put_and_take(run, queue="q")
    put(run, 2)
    put(run, delay=60.0)
    assert verb("counts") == Counter(states(database)) | {"waiting": 0}
    for state in State:
        for one in verb("jobs", state=state):
            assert verb("job", one.id) == one
            assert one.state == state == one.as_json()["state"]
            assert run(report.ended, [one.id])[one.id][0] == state
            assert verb("explain", one.id)
    held = {one.name: Counter(one.counts) for one in verb("queues")}
    assert held["default"] == Counter(ready=2, scheduled=1)
    assert held["q"] == Counter(running=1, succeeded=1, dead=1, cancelled=1)


def test_what_does_not_exist_is_not_found(app: Outlast, verb: Run) -> None:
    app.migrate()
    for name in ("job", "explain", "retry"):
        for id in (new().id, "nonsense", "'; DROP TABLE job"):
            with pytest.raises(JobNotFound):
                verb(name, id)
    with pytest.raises(InvalidOption):
        verb("jobs", state="done")
    assert verb("history", new().id) == ([], [])


def test_a_history_has_no_gaps(run: Run, database: Database) -> None:
    """R059, R203: each claim's end, each operator's action, in order; the row tells the rest."""
    (made,) = put(run, max_attempts=2)
    outcomes = ["failed", "released", "postponed", "permanent", "cancelled", "failed"]
    for n, outcome in enumerate(outcomes):
        (held,) = take(run, worker=f"w{n}")
        end(run, held, outcome)
        make_due(database)
        if run(job, made.id).final:
            run(job_actions.redrive_one, made.id, "ann")
    take(run, worker="lost")
    end_leases(database)
    run(reclaim)
    run(job_actions.cancel, made.id, "ann", "enough")
    run(job_actions.redrive_one, made.id, "bob")
    (last,) = take(run, worker="last")
    end(run, last, result='"done"')

    attempts, events = run(history, made.id)
    assert [one.outcome for one in attempts] == [*outcomes, "crashed"]
    assert [one.worker for one in attempts] == ["w0", "w1", "w2", "w3", "w4", "w5", "lost"]
    assert [one.fence for one in attempts] == list(range(1, 8))
    assert [one.kind for one in events] == ["redrive", "redrive", "cancel", "redrive"]
    assert [one.data["by"] for one in events] == ["ann", "ann", "ann", "bob"]
    row = run(job, made.id)
    assert (row.state, row.fence, row.attempt, row.worker, row.result) == (
        "succeeded", 8, 1, "last", "done",
    )  # fmt: skip
    times = [one.finished_at for one in attempts] + [row.finished_at]
    assert times == sorted(times)


def test_a_success_after_failures_is_on_record_too(run: Run, database: Database) -> None:
    """R059: three attempts, three records, the last one a success."""
    (made,) = put(run)
    for outcome in ("failed", "timed-out", "succeeded"):
        (held,) = take(run)
        end(run, held, outcome)
        make_due(database)
    attempts, _ = run(history, made.id)
    assert [(one.attempt, one.outcome) for one in attempts] == [
        (1, "failed"), (2, "timed-out"), (3, "succeeded"),
    ]  # fmt: skip
    assert [bool(one.error) for one in attempts] == [True, True, False]


def test_events_keep_the_order_in_which_they_were_said(run: Run) -> None:
    """R135, R138: per job, with the attempt that said them."""
    first, second = put_and_take(run, queue="a"), put_and_take(run, queue="b")
    said = [
        {"n": n, "job": one.id, **one.guard, "kind": "progress", "data": str(n)}
        for n, one in enumerate(random.Random(1).choices([first, second], k=200))
    ]
    run(finish, [ending(first, "failed")], said[:100])
    run(finish, [], said[100:])
    for one, spoken in ((first, said[:100]), (second, said)):
        mine = [int(event["data"]) for event in spoken if event["job"] == one.id]
        _, events = run(history, one.id)
        assert [event.data for event in events] == mine
        assert {event.attempt for event in events} == {1}
        assert [event.seq for event in events] == sorted(event.seq for event in events)


def test_of_many_events_the_latest_are_shown(run: Run, database: Database) -> None:
    """How far a long job is, and what was done to it last, is at the end."""
    job_ = put(run)[0].id
    text = "INSERT INTO {event} (job, attempt, kind, data, at) VALUES {rows}"
    moment = "0" if database.is_sqlite else "now()"
    rows = ", ".join(f"('{job_}', 1, 'log', '{{\"n\": {n}}}', {moment})" for n in range(1500))
    database.rows(text.format(event=table(database, "event"), rows=rows))
    run(job_actions.cancel, job_, "somebody", "")
    _, events = run(history, job_)
    assert len(events) == report.MAX_EVENTS_SHOWN
    assert [event.kind for event in events[-2:]] == ["log", "cancel"]
    assert events[-2].data == {"n": 1499}
    assert [event.seq for event in events] == sorted(event.seq for event in events)
    _, first = run(report.history_page, job_, 0, 10)
    assert [event.data["n"] for event in first] == list(range(10))


def test_of_many_attempts_the_latest_are_shown(run: Run, database: Database) -> None:
    """A job that polls with RetryLater for months has more than a page or a process should load."""
    job_ = put(run)[0].id
    moment = "0" if database.is_sqlite else "now()"
    rows = ", ".join(
        f"('{job_}', {n}, {n}, 'w', 'postponed', {moment}, {moment})" for n in range(1, 1501)
    )
    columns = "job, fence, attempt, worker, outcome, started_at, finished_at"
    database.rows(f"INSERT INTO {table(database, 'attempt')} ({columns}) VALUES {rows}")
    attempts, _ = run(history, job_)
    assert [one.attempt for one in attempts] == list(range(501, 1501))
    attempts, _ = run(report.history_page, job_, 0, 10)
    assert [one.attempt for one in attempts] == list(range(501, 1501))


def test_a_job_explains_itself(run: Run, store: Store, database: Database) -> None:
    """R199: why it is not running, in each state."""

    def why(id: str) -> str:
        return run(explain, id, store.confirm_dead)

    (ready,) = put(run)
    assert "No worker is alive" in why(ready.id)
    card = {
        "id": "w1", "host": "h", "pid": 7, "queues": '["other"]', "tasks": "[]",
        "concurrency": 3, "version": "1", "lease": 15.0,
    }  # fmt: skip
    run(worker_ops.register, card)
    assert "serves the queue 'default'" in why(ready.id)
    assert run(report.unhandled) == [("default", "work", 1)]
    run(job_actions.set_paused, "default", True, "ann")
    assert "paused" in why(ready.id)
    run(job_actions.set_paused, "default", False, "ann")
    (later,) = put(run, delay=3600.0)
    assert "1 h" in why(later.id) or "60.0 min" in why(later.id)
    (held,) = take(run)
    assert "w1" in why(held.id)
    end_leases(database)
    assert "expired" in why(held.id)
    end(run, held, "permanent")
    assert "it broke" in why(held.id)


def test_a_row_that_somebody_spoiled_can_still_be_read(run: Run, database: Database) -> None:
    """R013, R078: reading never fails, for it or for its neighbours."""
    put(run, 3)
    if database.is_sqlite:
        set_all(database, "args = '{broken', error = 'no json'", "true")
    else:
        set_all(database, "args = '[]', error = '\"text\"'", "true")
    assert len(run(jobs, Filter(), None, 10)) == 3
    assert len(take(run, 9)) == 3
