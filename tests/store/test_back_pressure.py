"""Back-pressure: a bounded queue refuses, drops or lets callers wait when it is full."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

import pytest

from outlast import InvalidOption, JobCancelled, Outlast, QueueFull, Task, chain
from outlast.client import room
from outlast.model.admission import Admission, QueueRoom
from outlast.ops.admission import enqueue_bounded
from outlast.ops.enqueue import enqueue
from outlast.ops.table_metrics import read_table_metrics
from tests.store.callers import Caller
from tests.store.conftest import Run
from tests.store.crowd import all_at_once
from tests.store.jobs import column, end, new, table, take
from tests.support import Database

pytestmark = pytest.mark.kinds("sqlite", "postgres")


def bounded(app: Outlast, most: int, overflow: Any) -> Task[..., Any]:
    app.queue("ingest", most_waiting=most, overflow=overflow)

    @app.task(name="load", queue="ingest")
    def load(n: int = 0) -> None: ...

    return load


def drain(app: Outlast, number: int) -> None:
    for claim in take(app.store.run, number, queue="ingest"):
        end(app.store.run, claim)


def ready(database: Database) -> int:
    return column(database, "state").count("ready")


def test_a_full_queue_refuses_with_the_facts(app: Outlast, verb: Run, database: Database) -> None:
    """R244: nothing is stored, and there is room again as soon as jobs have started."""
    load = bounded(app, 3, "refuse")
    verb("enqueue", load.job(1), load.job(2))
    with pytest.raises(QueueFull, match="full: 2 jobs are ready, 3 may be, and 2 more do not") as e:
        verb("enqueue", load.job(3), load.job(4))
    assert (e.value.queue, e.value.waiting, e.value.most_waiting, e.value.asked) == (
        "ingest", 2, 3, 2
    )  # fmt: skip
    verb("enqueue", load.job(3))
    with pytest.raises(QueueFull):
        verb("enqueue", load.job(4))
    drain(app, 1)
    verb("enqueue", load.job(4))
    assert ready(database) == 3


def test_without_overflow_it_is_only_told(app: Outlast, database: Database) -> None:
    """R244: the default refuses nothing, and asks nothing of the database."""
    app.queue("ingest", most_waiting=1)
    assert not app._parts.bounded_queues
    app._declare_queues()
    app.store.run(enqueue, [new(queue="ingest") for _ in range(3)])
    assert ready(database) == 3
    assert app.store.run(read_table_metrics).most_waiting == {"ingest": 1}


def test_drop_new_cancels_what_does_not_fit(app: Outlast, verb: Run) -> None:
    """R244: whoever waits for a dropped job is told; nothing is silently lost."""
    load = bounded(app, 3, "drop_new")
    jobs = verb("enqueue", *(load.job(n) for n in range(5)))
    assert [str(job.state) for job in jobs] == ["ready"] * 3 + ["cancelled"] * 2
    with pytest.raises(JobCancelled, match="dropped: the queue 'ingest' was full"):
        app.result(jobs[4].id, timeout=1)
    assert [event.kind for event in app.history(jobs[4].id)[1]] == ["drop"]


def test_drop_oldest_makes_room_among_the_lowest_priority(app: Outlast, verb: Run) -> None:
    """R244."""
    load = bounded(app, 3, "drop_oldest")
    high = load.using(priority=5).enqueue(0)
    old = verb("enqueue", load.job(1), load.job(2))
    new = verb("enqueue", load.job(3), load.job(4))
    states = [str(app.job(job.id).state) for job in (high, *old, *new)]
    assert states == ["ready", "cancelled", "cancelled", "ready", "ready"]


def test_jobs_that_are_not_ready_at_once_need_no_room(app: Outlast, verb: Run) -> None:
    """R244: scheduled jobs and those that wait for others are not counted, so nothing is refused
    or dropped for them either."""
    load = bounded(app, 1, "refuse")
    verb("enqueue", chain(load.job(1), load.job(2), load.job(3)))
    verb("enqueue", load.using(delay=60).job(4), load.using(delay=60).job(5))
    load.using(key="doc", debounce=60).enqueue(6)
    with pytest.raises(QueueFull):
        load.enqueue(7)


@pytest.mark.parametrize("unique", [None, "waiting", "active", 600])
@pytest.mark.parametrize("overflow", ["refuse", "wait", "drop_new", "drop_oldest"])
def test_a_key_that_stands_gets_its_job_from_a_full_queue(
    app: Outlast, database: Database, overflow: str, unique: Any
) -> None:
    """R003, R242, R244: without an error, and at no other job's cost."""
    load = bounded(app, 2, overflow).using(unique=unique)
    jobs = app.enqueue(load.using(key="a").job(1), load.using(key="b").job(1))
    again = app.enqueue(load.using(key="b").job(1))
    assert [job.id for job in again] == [jobs[1].id]
    assert ready(database) == 2


def test_a_key_that_stands_in_the_callers_transaction_needs_no_room(
    app: Outlast, caller: Caller, database: Database
) -> None:
    load = bounded(app, 1, "refuse").using(key="a", unique="waiting")
    (first,) = caller.enqueue(app, load.job(1))
    (again,) = caller.enqueue(app, load.job(1))
    caller.commit()
    assert again.id == first.id and ready(database) == 1


@pytest.mark.parametrize("overflow", ["drop_oldest", "drop_new"])
def test_an_enqueue_that_is_repeated_drops_nothing_more(
    app: Outlast, database: Database, overflow: str
) -> None:
    """R004, R244: the answer of a commit was lost, and the store sends it again."""
    load = bounded(app, 3, overflow)
    app.enqueue(*(load.job(n) for n in range(3)))
    full = Admission("ingest", 2, 0, QueueRoom(3, overflow, 0, 3, 0.0))
    jobs = [new(queue="ingest", task="load") for _ in range(2)]
    sent = app.store.run(enqueue_bounded, jobs, [full])
    again = app.store.run(enqueue_bounded, jobs, [full])
    assert [job.state for job in again] == [job.state for job in sent]
    assert ready(database) == 3


def test_a_call_that_is_larger_than_the_queue_keeps_its_last_jobs(
    app: Outlast, verb: Run, database: Database
) -> None:
    """R244: drop_oldest never holds more than it may."""
    load = bounded(app, 2, "drop_oldest")
    verb("enqueue", load.job(0))
    jobs = verb("enqueue", *(load.job(n) for n in range(1, 6)))
    assert [str(job.state) for job in jobs] == ["cancelled"] * 3 + ["ready"] * 2
    assert ready(database) == 2


def test_drop_new_keeps_as_many_new_jobs_as_fit(
    app: Outlast, verb: Run, database: Database
) -> None:
    """Jobs whose keys stand take no room from the others of their call."""
    load = bounded(app, 2, "drop_new")
    verb("enqueue", load.using(key="a").job(1))
    jobs = verb("enqueue", load.using(key="a").job(1), load.job(2))
    assert [str(job.state) for job in jobs] == ["ready"] * 2 and ready(database) == 2


def test_a_dropped_job_takes_its_followers_along(app: Outlast) -> None:
    load = bounded(app, 1, "drop_oldest")
    first, follower = app.enqueue(chain(load.job(1), load.using(queue="other").job(2)))
    load.enqueue(3)
    assert str(app.job(first.id).state) == "cancelled"
    assert str(app.job(follower.id).state) == "dead"


def test_wait_goes_on_when_workers_make_room(
    app: Outlast, verb: Run, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R244: and no longer than its bound."""
    load = bounded(app, 1, "wait")
    verb("enqueue", load.job(1))
    worker = threading.Timer(0.3, drain, (app, 1))
    worker.start()
    verb("enqueue", load.job(2))
    worker.join()
    monkeypatch.setattr(room, "WAIT_FOR_ROOM_S", 0.2)
    with pytest.raises(QueueFull):
        verb("enqueue", load.job(3))
    with pytest.raises(QueueFull, match="and 2 more do not fit"):
        verb("enqueue", load.job(3), load.job(4))
    assert ready(database) == 1


@pytest.mark.parametrize("overflow", ["refuse", "drop_new", "drop_oldest", "wait"])
def test_each_policy_holds_in_the_callers_transaction(
    app: Outlast, caller: Caller, database: Database, overflow: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """R244: what the caller takes back was never dropped."""
    monkeypatch.setattr(room, "WAIT_FOR_ROOM_S", 0.1)
    load = bounded(app, 2, overflow)
    first = load.enqueue(1)
    for finish in (caller.rollback, caller.commit):
        caller.enqueue(app, load.job(2))
        with suppress(QueueFull):
            caller.enqueue(app, load.job(3))
            assert overflow.startswith("drop")
        finish()
        if finish == caller.rollback:
            assert str(app.job(first.id).state) == "ready"
    assert ready(database) == 2
    dropped = {"drop_new": "ready", "drop_oldest": "cancelled"}.get(overflow, "ready")
    assert str(app.job(first.id).state) == dropped


@pytest.mark.kinds("postgres")
def test_an_open_transaction_of_one_caller_does_not_stop_the_others(
    app: Outlast, caller: Caller, database: Database
) -> None:
    """A row locked in a producer's transaction would stop all producers."""
    load = bounded(app, 100, "refuse")
    caller.enqueue(app, load.job(1))
    all_at_once(4, load.enqueue)
    caller.commit()
    assert ready(database) == 5


@pytest.mark.parametrize("overflow", ["refuse", "drop_oldest", "drop_new"])
def test_callers_at_once_never_exceed_it_by_more_than_themselves(
    app: Outlast, database: Database, overflow: str
) -> None:
    """R244: 16 threads beside two workers; sampled all the while."""
    most, threads = 40, 16
    load = bounded(app, most, overflow)
    app.migrate()
    running, worst = threading.Event(), [0]
    running.set()

    def act(n: int) -> None:
        if n == 0:
            while running.is_set():
                worst[0] = max(worst[0], ready(database))
        elif n < 3:
            while running.is_set():
                drain(app, 3)
        else:
            for m in range(10):
                with suppress(QueueFull):
                    load.enqueue(m)
            finished.release()

    finished = threading.Semaphore(0)

    def stop() -> None:
        for _ in range(threads):
            finished.acquire()
        running.clear()

    stopper = threading.Thread(target=stop)
    stopper.start()
    all_at_once(threads + 3, act)
    stopper.join()
    assert worst[0] <= most + threads


def test_a_large_queue_is_counted_once_a_second(app: Outlast, database: Database) -> None:
    """No count of all jobs with each enqueue: neither while there is room, nor when it is full."""
    load = bounded(app, 100_000, "refuse")
    load.enqueue(1)
    state = f"SELECT room, waiting FROM {table(database, 'admission')}"
    assert database.rows(state) == [(99_999, 0)]
    load.enqueue(2)
    assert database.rows(state) == [(99_998, 0)]
    full = QueueRoom(100_000, "refuse", 0, 100_000, 0.5)
    assert full.fresh and not QueueRoom(100_000, "refuse", 0, 100_000, 1.5).fresh
    assert not QueueRoom(100_000, "refuse", 0, 100_000, -5.0).fresh  # the clock stepped back
    assert not QueueRoom(1000, "refuse", 0, 1000, 0.0).fresh


def test_a_limit_that_is_changed_at_run_time_holds_at_once(app: Outlast) -> None:
    load = bounded(app, 1, "refuse")
    load.enqueue(1)
    app.limit("ingest", most_waiting=3)
    app.enqueue(load.job(2), load.job(3))
    app.limit("ingest", most_waiting=2)
    with pytest.raises(QueueFull):
        load.enqueue(4)
    app.limit("ingest", overflow="tell")
    for n in range(5):
        load.enqueue(n)
    app.limit("ingest", reset=True)
    with pytest.raises(QueueFull):
        load.enqueue(5)


def test_bad_bounds_are_refused(app: Outlast) -> None:
    with pytest.raises(InvalidOption, match="overflow must be one of tell, refuse"):
        app.queue("a", most_waiting=1, overflow="explode")  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="overflow needs most_waiting"):
        app.queue("a", overflow="refuse")
    with pytest.raises(InvalidOption, match="most_waiting must be a whole number from 1"):
        app.queue("a", most_waiting=0)
