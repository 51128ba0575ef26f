"""Schedules: one job per tick, and every policy decided in the tick's own transaction."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from outlast import InvalidOption, Outlast, ScheduleExists, ScheduleNotFound, State
from outlast.model.schedule import tick_of_key
from outlast.ops.announce import announce
from outlast.ops.fire import FireResult, fire_due
from tests.store.jobs import take
from tests.store.schedules import declared, past_tick, set_column, set_next, table
from tests.support import Database

Run = Callable[..., Any]
HOUR = 3600.0


def announced(run: Run, app: Outlast) -> None:
    run(announce, list(app.registry.schedules.values()))


def fire(run: Run) -> FireResult:
    return run(fire_due, ["report"])


def ticks(app: Outlast) -> list[float]:
    """The nominal times of all jobs of schedules, in order."""
    found = (tick_of_key(job.key) for job in app.jobs(limit=1000))
    return sorted(tick.timestamp() for tick in found if tick is not None)


def test_a_new_schedule_starts_with_its_next_tick(run: Run, app: Outlast) -> None:
    """R154: no burst at first sight."""
    declared(app, every="1h")
    announced(run, app)
    announced(run, app)
    [made] = app.schedules()
    assert made.next_at is not None
    assert 0 < (made.next_at - datetime.now(UTC)).total_seconds() <= HOUR + 5
    assert fire(run).found == 0


def test_a_tick_makes_one_job_under_its_key(run: Run, app: Outlast, database: Database) -> None:
    """R153: the row moves on and the job is there, and firing again finds nothing."""
    declared(app, cron="@hourly", queue="docs")
    announced(run, app)
    set_next(database, "report", tick := past_tick(HOUR, 0))
    assert fire(run).fired == 1
    assert fire(run).found == 0
    [job] = app.jobs()
    moment = datetime.fromtimestamp(tick, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert (job.key, job.queue, job.state) == (f"cron:report:{moment}", "docs", State.READY)
    [schedule] = app.schedules()
    assert schedule.next_at == datetime.fromtimestamp(tick + HOUR, UTC)
    assert (schedule.fired, schedule.last_job, schedule.last_state) == (1, job.id, "ready")


def test_a_tick_whose_job_stands_makes_no_second_one(
    run: Run, app: Outlast, database: Database
) -> None:
    """R153: the key is the second net, should a row be set back, as by a restored backup."""
    declared(app, every="1h")
    announced(run, app)
    for _ in range(2):
        set_next(database, "report", past_tick(HOUR, 0))
        set_column(database, "report", "active", "[]")
        fire(run)
    assert len(app.jobs()) == 1


@pytest.mark.parametrize(
    ("missed", "fired", "missing"), [("once", 1, 4), ("none", 0, 5), ("all", 5, 0)]
)
def test_missed_ticks_follow_their_policy(
    run: Run, app: Outlast, database: Database, missed: str, fired: int, missing: int
) -> None:
    """R154: after hours without a worker."""
    declared(app, every="1h", missed=missed, overlap="allow", grace=1)
    announced(run, app)
    while time.time() % HOUR < 2:  # the current tick would be within the grace
        time.sleep(0.5)
    set_next(database, "report", past_tick(HOUR, 4))
    result = fire(run)
    assert (result.fired, result.missed) == (fired, missing)
    wanted = [past_tick(HOUR, back) for back in range(4, -1, -1)]
    assert ticks(app) == wanted[len(wanted) - fired :]
    [schedule] = app.schedules()
    assert (schedule.fired, schedule.missed_ticks) == (fired, missing)
    assert schedule.next_at == datetime.fromtimestamp(past_tick(HOUR, -1), UTC)


def test_all_missed_ticks_come_in_order_some_in_each_pass(
    run: Run, app: Outlast, database: Database
) -> None:
    """R154: missed="all" after a long gap is bounded in each transaction."""
    declared(app, every="1m", missed="all", overlap="allow")
    announced(run, app)
    set_next(database, "report", past_tick(60, 49))
    assert fire(run).fired == 20
    assert ticks(app) == [past_tick(60, 49) + 60 * n for n in range(20)]
    while fire(run).found:
        pass
    assert len(ticks(app)) in (50, 51)  # one more if a minute has passed


def test_a_gap_of_years_is_jumped_over(run: Run, app: Outlast, database: Database) -> None:
    """R236"""
    declared(app, cron="* * * * *", tz="Europe/Berlin", overlap="allow")
    announced(run, app)
    set_next(database, "report", past_tick(60, 10 * 365 * 24 * 60))
    began = time.monotonic()
    assert fire(run).fired == 1
    assert time.monotonic() - began < 5
    assert ticks(app)[0] >= time.time() - 120


OVERLAPS = {
    "allow": [State.READY, State.RUNNING],
    "skip": [State.RUNNING],
    "queue": [State.RUNNING, State.WAITING],
    "cancel": [State.READY, State.RUNNING],
}


@pytest.mark.parametrize("overlap", OVERLAPS)
def test_a_tick_during_an_earlier_run_follows_its_policy(
    run: Run, app: Outlast, database: Database, overlap: str
) -> None:
    """R235"""
    declared(app, every="1h", overlap=overlap)
    announced(run, app)
    fire_first_only(run, app, database)
    take(run)
    set_next(database, "report", past_tick(HOUR, 0))
    fire(run)
    jobs = sorted(app.jobs(), key=lambda job: str(job.key))
    assert sorted(job.state for job in jobs) == OVERLAPS[overlap]
    assert jobs[0].cancelling is (overlap == "cancel")
    [schedule] = app.schedules()
    assert (schedule.skipped, bool(schedule.note)) == (
        (1, True) if overlap == "skip" else (0, False)
    )
    if overlap == "skip":
        earlier = datetime.fromtimestamp(past_tick(HOUR, 1), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        assert schedule.note == f"skipped: the run of {earlier} is still going"


def fire_first_only(run: Run, app: Outlast, database: Database) -> None:
    """One earlier tick, as it was fired in time."""
    set_next(database, "report", past_tick(HOUR, 0) - HOUR)
    fire(run)
    # missed="once" fires the latest: give its job the key of the tick before.
    tick = datetime.fromtimestamp(past_tick(HOUR, 1), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    mark = "?" if database.is_sqlite else "%s"
    database.rows(f"UPDATE {table(database, 'job')} SET key = {mark}", (f"cron:report:{tick}",))


def test_a_queued_run_is_one_and_starts_when_the_earlier_one_ends(
    run: Run, app: Outlast, database: Database
) -> None:
    """R235: overlap="queue"."""
    declared(app, every="1h", overlap="queue")
    announced(run, app)
    fire_first_only(run, app, database)
    [first] = take(run)
    for _ in range(2):
        set_next(database, "report", past_tick(HOUR, 0))
        fire(run)
        set_column(database, "report", "note", None)
    set_next(database, "report", past_tick(HOUR, 0))
    fire(run)
    assert sorted(job.state for job in app.jobs()) == [State.RUNNING, State.WAITING]
    assert "is queued already" in str(app.schedules()[0].note)
    app.reclaim(first.id)
    app.cancel(first.id)
    assert sorted(job.state for job in app.jobs()) == [State.CANCELLED, State.READY]


def test_two_deployments_with_different_code_lose_none_of_their_schedules(
    run: Run, app: Outlast, database: Database
) -> None:
    """R234"""
    declared(app, every="1h")
    announced(run, app)
    with Outlast(database.url, schema=database.schema) as other:

        @other.task(name="other", cron="0 3 * * *")
        def another() -> None: ...

        run(announce, list(other.registry.schedules.values()))
    announced(run, app)
    assert [one.name for one in app.schedules()] == ["other", "report"]


def test_changes_at_run_time_outlive_deployments_until_reset(verb: Run, app: Outlast) -> None:
    """R234, R155: an edit takes effect at once, and by the new ticks only."""
    run = app.store.run
    declared(app, cron="0 3 * * *", tz="Europe/Berlin")
    announced(run, app)
    changed = verb("change_schedule", "report", cron="15 4 * * *")
    assert (changed.cron, changed.tz) == ("15 4 * * *", "Europe/Berlin")
    assert changed.next_at is not None and changed.next_at.minute == 15
    announced(run, app)
    assert app.schedules()[0].cron == "15 4 * * *"
    declared(app, cron="0 5 * * *", tz="Asia/Tokyo")  # the next deployment says otherwise
    announced(run, app)
    [merged] = app.schedules()
    assert (merged.cron, merged.tz, merged.changes) == (
        "15 4 * * *", "Asia/Tokyo", {"cron": "15 4 * * *", "every": None},
    )  # fmt: skip
    back = verb("reset_schedule", "report")
    assert (back.cron, back.tz, back.changes) == ("0 5 * * *", "Asia/Tokyo", {})
    assert [one["action"] for one in app.schedule_report("report").actions] == ["reset", "change"]


def test_a_change_that_does_not_fit_new_code_stays_in_force_until_reset(
    run: Run, app: Outlast
) -> None:
    """R234: and keeps no other schedule from being announced."""
    declared(app, cron="0 3 * * *")
    announced(run, app)
    app.change_schedule("report", tz="Asia/Tokyo")
    task = declared(app, every="1h")
    app.schedule("another", task.job(), every="1h")
    announced(run, app)
    by_name = {one.name: one for one in app.schedules()}
    assert (by_name["report"].cron, by_name["report"].tz) == ("0 3 * * *", "Asia/Tokyo")
    assert by_name["another"].every == 3600.0
    assert app.reset_schedule("report").every == 3600.0


def test_a_paused_schedule_does_not_fire_and_resumes_with_its_next_tick(
    verb: Run, app: Outlast, database: Database
) -> None:
    """R155"""
    run = app.store.run
    declared(app, every="1h")
    announced(run, app)
    paused = verb("pause_schedule", "report", reason="year-end")
    assert (paused.paused, paused.pause_reason, paused.next_at) == (True, "year-end", None)
    set_next(database, "report", past_tick(HOUR, 3))
    assert fire(run).found == 0
    resumed = verb("resume_schedule", "report")
    assert resumed.next_at == datetime.fromtimestamp(past_tick(HOUR, -1), UTC)
    assert fire(run).found == 0
    assert app.jobs() == []


def test_a_pause_between_look_and_fire_wins(run: Run, app: Outlast, database: Database) -> None:
    """R155: the guarded update sees it, as the version grows with each change."""
    declared(app, every="1h")
    announced(run, app)
    set_next(database, "report", past_tick(HOUR, 0))
    op = fire_due(["report"])
    next(op)
    statement = op.send(None)
    rows = app.store.run(lambda: _one(statement))
    app.pause_schedule("report")
    advance = op.send(rows)
    assert app.store.run(lambda: _one(advance)) == []


def _one(statement: Any) -> Any:
    rows = yield statement
    return rows


def test_run_now_skip_and_backfill(verb: Run, app: Outlast, database: Database) -> None:
    """R234"""
    run = app.store.run
    declared(app, every="1h")
    announced(run, app)
    manual = verb("run_schedule", "report")
    assert (manual.state, tick_of_key(manual.key) is not None) == (State.READY, True)
    skipped = verb("skip_schedule", "report", n=2)
    assert skipped.next_at == datetime.fromtimestamp(past_tick(HOUR, -3), UTC)
    end = datetime.fromtimestamp(past_tick(HOUR, 0), UTC)
    made = verb("backfill_schedule", "report", end - timedelta(hours=3), end)
    assert [tick_of_key(job.key) for job in made] == [end - timedelta(hours=n) for n in (3, 2, 1)]
    assert verb("backfill_schedule", "report", end - timedelta(hours=3), end) == []
    assert app.schedule_report("report").history[0].id == manual.id
    kinds = [one["action"] for one in app.schedule_report("report").actions]
    assert kinds == ["backfill", "backfill", "skip", "run"]


def test_schedules_made_at_run_time(verb: Run, app: Outlast) -> None:
    """R234"""

    @app.task
    def report_for(country: str) -> None: ...

    job = report_for.job(country="de")
    made = verb("create_schedule", "nightly-de", job, cron="0 3 * * *", tz="Europe/Berlin")
    assert (made.task, made.args, made.from_code) == ("report_for", {"country": "de"}, False)
    with pytest.raises(ScheduleExists):
        verb("create_schedule", "nightly-de", job, every=60)
    verb("delete_schedule", "nightly-de")
    assert app.schedules() == []
    with pytest.raises(ScheduleNotFound):
        verb("delete_schedule", "nightly-de")
    with pytest.raises(InvalidOption):
        verb("create_schedule", "nightly-de", job, cron="0 3 * *")
    with pytest.raises(InvalidOption):
        verb("create_schedule", "nightly-de", job, cron="0 3 * * *", tz="Europe/Atlantis")
    assert app.schedules() == []


def test_a_schedule_found_bad_is_marked_and_the_others_fire(
    run: Run, app: Outlast, database: Database
) -> None:
    """R155"""
    task = declared(app, every="1h")
    app.schedule("broken", task.job(), every="1h")
    announced(run, app)
    set_column(database, "broken", "spec", '{"cron": "99 99 * * *"}')
    for name in ("report", "broken"):
        set_next(database, name, past_tick(HOUR, 0))
    result = fire(run)
    assert (result.fired, list(result.broken)) == (1, ["broken"])
    by_name = {one.name: one for one in app.schedules()}
    assert "99" in str(by_name["broken"].error)
    assert by_name["report"].error is None
    assert fire(run).found == 0
    assert app.reset_schedule("broken").error is None


def test_a_schedule_of_another_deployments_task_is_left_alone_and_shown_as_an_orphan(
    run: Run, app: Outlast, database: Database
) -> None:
    """R234: never fired by workers without the task, never deleted by itself."""
    declared(app, every="1h")
    announced(run, app)
    set_next(database, "report", past_tick(HOUR, 0))
    assert run(fire_due, ["other"]).found == 0
    before = "strftime('%s', 'now') - 8 * 86400" if database.is_sqlite else "now() - interval '8 d'"
    database.rows(f"UPDATE {table(database, 'schedule')} SET announced_at = {before}")
    assert app.schedules()[0].orphan is True
    announced(run, app)
    assert app.schedules()[0].orphan is False


@pytest.mark.slow_on("postgres")
@pytest.mark.quiet
def test_ten_thousand_schedules_due_at_once_fire_within_seconds(
    store: Any, app: Outlast, database: Database
) -> None:
    """R236: it takes 1.4 to 1.9 s on two quiet cores; the bar has a margin for slower ones."""
    task = declared(app, every="1h")
    day = (datetime.now(UTC) + timedelta(days=180)).strftime("%d %m *")
    for n in range(10_000):
        app.schedule(f"s{n}", task.job(), cron=f"{n % 60} {n % 24} {day}", tz="Europe/Berlin")
    store.run(announce, list(app.registry.schedules.values()))
    now = f"{past_tick(HOUR, 0)}" if database.is_sqlite else f"to_timestamp({past_tick(HOUR, 0)})"
    database.rows(
        f"UPDATE {table(database, 'schedule')} SET next_at = {now} WHERE name <> 'report'"
    )
    began, fired = time.monotonic(), 0
    while result := store.run(fire_due, ["report"]).fired:
        fired += result
    took = time.monotonic() - began
    print(f"10,000 fired in {took:.2f} s")
    assert fired == 10_000
    assert took < 5
