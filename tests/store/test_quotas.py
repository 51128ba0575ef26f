"""Quotas: how many jobs a queue, or a lane, admits in a period; each job counts once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest

from outlast import InvalidOption, Job, Outlast, QueueFull, QuotaExceeded, Task, chain
from outlast.model.ids import new_job_id
from outlast.ops import quotas
from outlast.ops.enqueue import enqueue
from outlast.ops.operation import Op
from outlast.ops.quotas import enqueue_in_quota, prune_quotas, reserve, return_lapsed
from outlast.ops.reclaim import reclaim
from tests.store.callers import Caller, Psycopg, Sqlite3
from tests.store.conftest import Run
from tests.store.crowd import all_at_once
from tests.store.jobs import column, end, end_leases, new, table, take
from tests.support import Database
from tests.worker.working import Spy

pytestmark = pytest.mark.kinds("sqlite", "postgres")


def limited(app: Outlast, **quotas: Any) -> Task[..., Any]:
    app.queue("ingest", **quotas)

    @app.task(name="load", queue="ingest")
    def load(n: int = 0) -> None: ...

    return load


def used(app: Outlast) -> int | None:
    (found,) = [one for one in app.limits() if one.queue == "ingest"]
    return found.quota_used


def stored(database: Database) -> int:
    return len(column(database, "id"))


def next_period(database: Database, days: int = 1) -> None:
    """As if a period had passed."""
    database.rows(f"UPDATE {table(database, 'quota')} SET starts_at = starts_at - {days * 86400}")


def lapse(app: Outlast) -> int:
    """As if half a minute had passed for reservations; how many jobs were given back."""
    return app.store.run(return_lapsed, -1.0)  # also of this very moment


@pytest.fixture
def caller(app: Outlast, database: Database) -> Iterator[Caller]:
    app.migrate()
    opened = (Sqlite3 if database.is_sqlite else Psycopg)(database)
    yield opened
    opened.close()


def test_a_quota_refuses_with_the_facts_and_the_next_moment(
    app: Outlast, verb: Run, database: Database
) -> None:
    """R149: checked at admission. A call is admitted as a whole, or nothing of it is stored."""
    load = limited(app, quota="3/d")
    verb("enqueue", load.job(1), load.job(2))
    with pytest.raises(QuotaExceeded, match="2 more: 2 of 3 jobs are used") as e:
        verb("enqueue", load.job(3), load.job(4))
    assert (e.value.queue, e.value.lane, e.value.used, e.value.allowed) == ("ingest", None, 2, 3)
    resets = e.value.resets_at
    assert f"There is room again at {resets:%Y-%m-%d} 00:00:00 UTC." in str(e.value)
    assert (resets.hour, resets.minute, resets.second) == (0, 0, 0), "at midnight, UTC"
    assert 0 < (resets - datetime.now(UTC)).total_seconds() <= 86400
    with pytest.raises(QuotaExceeded, match="enqueue fewer at a time"):
        verb("enqueue", *(load.job(n) for n in range(4)))
    assert stored(database) == 2
    verb("enqueue", load.job(3))
    assert used(app) == 3
    next_period(database)
    assert used(app) == 0
    verb("enqueue", *(load.job(n) for n in range(3)))
    assert stored(database) == 6


def test_a_call_that_comes_late_to_its_counter_counts_in_the_next_period(
    app: Outlast, database: Database
) -> None:
    """R149: it waited for the counter at the end of its period, and others have begun the next one:
    what they have counted is not forgotten."""
    load = limited(app, lane="tenant", quota="3/d", lane_quota="3/d")
    app.enqueue(load.job(1), load.job(2))
    next_period(database, -1)
    begun = database.rows(f"SELECT starts_at FROM {table(database, 'quota')}")
    load.enqueue(3)
    counters = f"SELECT starts_at, used FROM {table(database, 'quota')}"
    assert database.rows(counters) == [(at, 3) for (at,) in begun]
    with pytest.raises(QuotaExceeded):
        load.enqueue(4)


def test_a_longer_period_counts_from_its_own_beginning(app: Outlast, database: Database) -> None:
    """R149: a counter of an hour within the day is not one of a later day."""
    load = limited(app, quota="3/h")
    app.enqueue(load.job(1), load.job(2))
    app.limit("ingest", quota="3/d")
    counter = f"SELECT starts_at, used FROM {table(database, 'quota')}"
    ((starts_at, _),) = database.rows(counter)
    day = starts_at - starts_at % 86400
    database.rows(f"UPDATE {table(database, 'quota')} SET starts_at = {day + 3600}")
    load.enqueue(3)
    assert database.rows(counter) == [(day, 1)]


def test_each_lane_has_its_own_quota(app: Outlast, verb: Run, database: Database) -> None:
    """R149."""
    load = limited(app, lane="tenant", quota="5/h", lane_quota="2/h")
    acme, other = load.using(tenant="acme"), load.using(tenant="other")
    verb("enqueue", acme.job(1), acme.job(2), other.job(1))
    with pytest.raises(QuotaExceeded, match="lane 'acme' of the queue 'ingest'") as e:
        verb("enqueue", acme.job(3), other.job(2))
    assert e.value.lane == "acme"
    verb("enqueue", other.job(2), load.using(tenant="third").job(1))
    with pytest.raises(QuotaExceeded, match="The quota of the queue 'ingest'"):
        verb("enqueue", load.using(tenant="third").job(2))
    assert stored(database) == 5


def test_a_job_counts_once_whatever_becomes_of_it(app: Outlast, database: Database) -> None:
    """R149: retries do not count twice, nor do redrives and reclaims."""
    load = limited(app, quota="2/d")
    app.enqueue(load.job(1), load.job(2))
    first, second = take(app.store.run, 2, queue="ingest")
    end(app.store.run, first, "failed")
    end(app.store.run, second, "permanent")
    app.retry(second.id)
    take(app.store.run, 1, queue="ingest")
    end_leases(database)
    app.store.run(reclaim)
    assert used(app) == 2
    next_period(database)
    load.enqueue(3)
    assert used(app) == 1


@pytest.mark.parametrize("unique", [None, "waiting", "active", 600])
def test_a_key_that_stands_does_not_count(
    app: Outlast, verb: Run, database: Database, unique: Any
) -> None:
    """R003, R149, R242: the answer is the existing job, also when the quota is used up."""
    load = limited(app, quota="2/d").using(unique=unique)
    (first,) = verb("enqueue", load.using(key="a").job(1))
    (again, second) = verb("enqueue", load.using(key="a").job(1), load.using(key="b").job(1))
    assert again.id == first.id and used(app) == 2
    (still,) = verb("enqueue", load.using(key="b").job(1))
    assert still.id == second.id and used(app) == 2
    with pytest.raises(QuotaExceeded):
        verb("enqueue", load.using(key="b").job(1), load.using(key="c").job(1))
    assert stored(database) == 2


def test_a_call_that_is_sent_again_does_not_count(app: Outlast) -> None:
    """R004: the answer of a commit was lost, and the store sends it again."""
    limited(app, quota="3/d")
    app._declare_queues()
    jobs = [new(queue="ingest", task="load") for _ in range(2)]
    for _ in range(2):
        app.store.run(enqueue_in_quota, jobs, [], {"ingest"})
    assert used(app) == 2


def test_jobs_of_flows_and_scheduled_ones_count_when_they_are_enqueued(app: Outlast) -> None:
    load = limited(app, quota="4/d")
    app.enqueue(chain(load.job(1), load.job(2)), load.using(delay=60).job(3))
    assert used(app) == 3
    app.enqueue(load.using(queue="other").job(4))
    assert used(app) == 3


def test_a_job_that_a_full_queue_drops_does_not_count(app: Outlast) -> None:
    """R244: it was not admitted."""
    load = limited(app, quota="5/d", most_waiting=2, overflow="drop_new")
    app.enqueue(*(load.job(n) for n in range(4)))
    assert used(app) == 2


def test_both_limits_hold_together(app: Outlast) -> None:
    load = limited(app, quota="2/d", most_waiting=1, overflow="refuse")
    load.enqueue(1)
    with pytest.raises(QueueFull):
        load.enqueue(2)
    assert used(app) == 1


def test_callers_at_once_are_admitted_exactly(app: Outlast, database: Database) -> None:
    """R149: 12 threads, of which each would use up a third of the quota."""
    load = limited(app, lane="tenant", quota="100/d", lane_quota="40/d")
    app.migrate()

    def act(n: int) -> None:
        for m in range(17):
            with suppress(QuotaExceeded):
                app.enqueue(*(load.using(tenant=f"t{n % 4}").job(m) for _ in range(2)))

    all_at_once(12, act)
    assert stored(database) == used(app) == 100
    tenants = column(database, "tenant")
    assert max(tenants.count(name) for name in set(tenants)) <= 40


@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_what_a_caller_rolls_back_does_not_count(
    app: Outlast, caller: Caller, database: Database, ends: str
) -> None:
    """R149: nor does what is not inserted after all."""
    load = limited(app, quota="3/d")
    (first,) = caller.enqueue(app, load.using(key="a").job(1))
    (again,) = caller.enqueue(app, load.using(key="a").job(1))
    caller.enqueue(app, load.job(2))
    assert again.id == first.id
    with pytest.raises(QuotaExceeded):
        caller.enqueue(app, load.job(3), load.job(4))
    getattr(caller, ends)()
    left = 1 if ends == "commit" else 3
    lapse(app)
    assert used(app) == 3 - left == stored(database)
    app.enqueue(*(load.job(n) for n in range(left)))
    with pytest.raises(QuotaExceeded):
        load.enqueue(9)


@pytest.mark.kinds("postgres")
def test_a_savepoint_that_is_rolled_back_does_not_count(
    app: Outlast, caller: Caller, database: Database
) -> None:
    load = limited(app, quota="3/d")
    caller.enqueue(app, load.job(1))
    caller.execute("SAVEPOINT mine")
    caller.enqueue(app, load.job(2))
    caller.execute("ROLLBACK TO mine")
    caller.commit()
    assert lapse(app) == 1
    assert used(app) == stored(database) == 1


@pytest.mark.kinds("postgres")
def test_a_refused_caller_gets_what_others_rolled_back(
    app: Outlast, caller: Caller, database: Database
) -> None:
    """R149: it is given back when it is needed, at the latest."""
    load = limited(app, quota="2/d")
    caller.enqueue(app, load.job(1), load.job(2))
    caller.rollback()
    with pytest.raises(QuotaExceeded):
        caller.enqueue(app, load.job(3))
    caller.rollback()
    ago = "reserved_at - interval '1 hour'"
    database.rows(f"UPDATE {table(database, 'quota_reservation')} SET reserved_at = {ago}")
    caller.enqueue(app, load.job(3))
    caller.commit()
    assert used(app) == stored(database) == 1


@pytest.mark.kinds("postgres")
def test_a_caller_refused_by_its_lane_gets_what_others_rolled_back(
    app: Outlast, caller: Caller, database: Database
) -> None:
    """R149: also if lanes alone have a quota."""
    load = limited(app, lane="tenant", lane_quota="2/d")
    caller.enqueue(app, load.job(1), load.job(2))
    caller.rollback()
    ago = "reserved_at - interval '1 hour'"
    database.rows(f"UPDATE {table(database, 'quota_reservation')} SET reserved_at = {ago}")
    caller.enqueue(app, load.job(3))
    caller.commit()
    assert stored(database) == 1


def test_a_reservation_that_is_sent_again_counts_once(app: Outlast, database: Database) -> None:
    """R004: the answer of its commit was lost, and the store sends it again."""
    limited(app, lane="tenant", quota="3/d", lane_quota="3/d")
    app._declare_queues()
    reservation, counts = new_job_id(), quotas.count_jobs([("ingest", "a")] * 2, {"ingest"})
    for _ in range(2):
        app.store.run(reserve, counts, reservation)
    assert used(app) == 2
    assert lapse(app) == 2, "each job is in its queue and in its lane, and is one job"
    assert used(app) == 0


@pytest.mark.kinds("postgres")
def test_an_open_transaction_of_one_caller_does_not_stop_the_others(
    app: Outlast, caller: Caller, database: Database
) -> None:
    """A counter locked in a producer's transaction would stop all producers; and what it holds is
    not given back while it is open, however long that is."""
    load = limited(app, lane="tenant", quota="9/d", lane_quota="6/d")
    caller.enqueue(app, load.job(1))
    all_at_once(4, load.enqueue)
    assert lapse(app) == 0
    caller.commit()
    assert used(app) == stored(database) == 5
    assert database.rows(f"SELECT id FROM {table(database, 'quota_reservation')}") == []


@pytest.mark.kinds("postgres")
@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_caller_that_keeps_its_snapshot_is_counted_within_it(
    app: Outlast, caller: Caller, database: Database, level: str
) -> None:
    """R149, R002: it would not see a reservation, nor the counter that it changed."""
    load = limited(app, lane="tenant", quota="3/d", lane_quota="3/d")
    load.enqueue(1)
    for ends in ("rollback", "commit"):
        caller.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
        caller.execute("SELECT 1")
        caller.enqueue(app, load.job(2))
        caller.enqueue(app, load.job(3))
        with pytest.raises(QuotaExceeded):
            caller.enqueue(app, load.job(4))
        getattr(caller, ends)()
        assert used(app) == stored(database) == (3 if ends == "commit" else 1)
    assert lapse(app) == 0


@pytest.mark.kinds("postgres")
def test_fewer_jobs_than_were_reserved_use_a_part(app: Outlast, database: Database) -> None:
    """Another call took a key meanwhile: the rest is given back."""
    limited(app, quota="9/d")
    app._declare_queues()
    reservation = new_job_id()
    app.store.run(reserve, quotas.count_jobs([("ingest", None)] * 3, {"ingest"}), reservation)
    jobs = [new(queue="ingest", task="load")]
    app.store.run(enqueue_in_quota, jobs, [], {"ingest"}, reservation)
    assert used(app) == 3
    assert lapse(app) == 2
    assert used(app) == 1


@pytest.mark.kinds("postgres")
def test_a_reservation_that_has_lapsed_is_counted_anew(app: Outlast, database: Database) -> None:
    """The caller's process was stopped between the two: its jobs count all the same."""
    limited(app, quota="1/d")
    app._declare_queues()
    reservation = new_job_id()
    app.store.run(reserve, quotas.count_jobs([("ingest", None)], {"ingest"}), reservation)
    assert lapse(app) == 1
    late = [new(queue="ingest", task="load")]
    app.store.run(enqueue_in_quota, late, [], {"ingest"}, reservation)
    assert used(app) == 1
    with pytest.raises(QuotaExceeded):
        app.store.run(enqueue_in_quota, [new(queue="ingest")], [], {"ingest"}, reservation)


def test_a_quota_is_changed_at_run_time_on_record(app: Outlast, database: Database) -> None:
    """R149, R238: what was admitted in the period still counts."""
    load = limited(app, quota="1/d")
    load.enqueue(1)
    app.limit("ingest", quota="2/d")
    load.enqueue(2)
    with pytest.raises(QuotaExceeded):
        load.enqueue(3)
    app.limit("ingest", quota=None)
    app.enqueue(*(load.job(n) for n in range(5)))
    app.limit("ingest", reset=True)
    with pytest.raises(QuotaExceeded):
        load.enqueue(4)
    kinds = database.rows(f"SELECT kind FROM {table(database, 'event')} ORDER BY seq")
    assert kinds == [("limits-declared",), ("limits",), ("limits",), ("limits",)]


def test_counters_of_past_periods_are_removed(app: Outlast, database: Database) -> None:
    """A lane for each of a million customers leaves no million rows behind."""
    load = limited(app, lane="tenant", quota="9/d", lane_quota="9/h")
    app.enqueue(*(load.using(tenant=tenant).job(1) for tenant in "abc"))
    assert app.store.run(prune_quotas, 100) == 0
    next_period(database)
    load.using(tenant="c").enqueue(2)
    assert app.store.run(prune_quotas, 100) == 2
    lanes = database.rows(f"SELECT lane FROM {table(database, 'quota')} ORDER BY lane")
    assert lanes == [("",), ("c",)]


def test_a_queue_without_a_quota_asks_nothing(app: Outlast) -> None:
    """A feature that is not used costs nothing."""
    limited(app, quota="9/d")
    spy = Spy(app)

    @app.task(name="plain")
    def plain() -> None: ...

    app._parts.notify_limiter._clock = lambda: 0.0  # nothing is due after the first
    plain.enqueue()
    spy.forget()
    job: Job = plain.enqueue()
    assert job.queue == "default" and spy.round_trips == 1
    assert set(spy.counts) == {"insert_job"}


def test_what_others_insert_is_not_counted(app: Outlast) -> None:
    """As with back-pressure: what a handler enqueues is part of its success."""
    limited(app, quota="1/d")
    app._declare_queues()

    def op() -> Op[list[Job]]:
        return (yield from enqueue([new(queue="ingest") for _ in range(3)]))

    app.store.run(op)
    assert used(app) == 0


@pytest.mark.parametrize(
    "quota", ["many", "0/d", "10", "1.5/d", "10/s", "10/30s", "10/w", "1/400d", 5, True, ""]
)
def test_a_bad_quota_is_refused_by_the_name_of_its_field(app: Outlast, quota: Any) -> None:
    for field in ("quota", "lane_quota"):
        with pytest.raises(InvalidOption, match=f"option {field} must be jobs per period such as"):
            app.queue("a", **{field: quota})
