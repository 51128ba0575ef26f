"""Schedules: announced, fired and changed; each tick has one job, wherever a process dies."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from ...model.schedule import tick_of_key
from ...model.schedule_state import ScheduleDefinition, StoredSchedule
from ...ops.access import ALL_JOBS
from ...ops.announce import announce, new_schedule_row
from ...ops.fire import break_schedule, fire_due
from ...ops.operation import BEGIN, Op, Rows, Statement
from ...ops.rewind import rewind
from ..scenario_context import ScenarioContext
from .scenario import scenario

HOUR_S, YEAR_S = 3600.0, 365 * 86400.0
DUE_TICKS = 3  # hourly ticks that are due when a scenario begins
GRACE_S = 5.0  # maximum delay of a tick, with missed="none"


def _definition(ctx: ScenarioContext, **options: object) -> ScheduleDefinition:
    """A schedule with the name of the queue, which identifies its jobs."""
    call = ctx.work.mark.using(queue=ctx.queue).job()
    return ScheduleDefinition.of(ctx.queue, call, {"every": HOUR_S} | options)


def _insert_due(definition: ScheduleDefinition) -> Op[None]:
    """Insert a schedule as it is after some hours without a worker."""
    yield BEGIN
    clock: Rows = yield Statement("schedule_clock")
    first = (clock[0][0] // HOUR_S - DUE_TICKS + 1) * HOUR_S
    row = new_schedule_row(definition, clock[0][0], code=True)
    yield Statement("insert_schedules", rows=[row | {"next": first}])


def _ticks(ctx: ScenarioContext) -> Counter[str]:
    """The number of jobs of each tick. (Jobs are found by their keys, as users find them.)"""
    jobs = ctx.ol.jobs(queue=ctx.queue, limit=100)
    return Counter(job.key for job in jobs if job.key and job.key.startswith(f"cron:{ctx.queue}:"))


@scenario("schedule-fire")
def fire(ctx: ScenarioContext) -> Iterator[None]:
    """Two workers fire three missed ticks, each of which must run."""
    ctx.run(_insert_due, _definition(ctx, missed="all", overlap="allow"))
    yield
    ctx.run(fire_due, ["mark"], 1)
    ctx.run(fire_due, ["mark"])


@fire.on_retry
def fire_again(ctx: ScenarioContext) -> Iterator[str]:
    """Another worker continues: no tick is lost, and none has two jobs."""
    while ctx.run(fire_due, ["mark"]).found:
        pass
    ticks = _ticks(ctx)
    if len(ticks) not in (DUE_TICKS, DUE_TICKS + 1) or ticks.total() != len(ticks):
        yield f"{DUE_TICKS} ticks were due, and have these jobs: {ticks}"
    fired = [one.fired for one in ctx.ol.schedules() if one.name == ctx.queue]
    if fired != [len(ticks)]:
        yield f"a schedule recorded {fired} fires, and has {len(ticks)} jobs"


@scenario("schedule-left-out")
def leave_out(ctx: ScenarioContext) -> Iterator[None]:
    """Three missed ticks, none of which may run late."""
    ctx.run(_insert_due, _definition(ctx, missed="none", grace=GRACE_S, overlap="allow"))
    yield
    ctx.run(fire_due, ["mark"])


@leave_out.on_retry
def leave_out_again(ctx: ScenarioContext) -> Iterator[str]:
    """Another worker continues: late ticks have no job, and are not fired later."""
    while ctx.run(fire_due, ["mark"]).found:
        pass
    for job in ctx.ol.jobs(queue=ctx.queue, limit=100):
        tick = tick_of_key(job.key)
        if tick is not None and (job.created_at - tick).total_seconds() > GRACE_S:
            yield f"a skipped tick has a job: {job.key}"


def _look() -> Op[Rows]:
    """Read as a slow worker does before it fires, without its locks."""
    op = fire_due(["mark"])
    next(op)
    rows: Rows = yield op.send([])
    return rows


def _fire_as_seen(seen: Rows) -> Op[None]:
    """Fire by rows that were read before."""
    op = fire_due(["mark"])
    yield next(op)
    op.send([])
    with suppress(StopIteration):
        statement = op.send(seen)
        while True:
            statement = op.send((yield statement))


@scenario("schedule-fired-between")
def fire_between(ctx: ScenarioContext) -> Iterator[None]:
    """Another worker fires the ticks that a slow one has read: the slow one fires nothing."""
    ctx.run(_insert_due, _definition(ctx, missed="all", overlap="allow"))
    yield
    seen = ctx.run(_look)
    ctx.run(fire_due, ["mark"])
    ctx.run(_fire_as_seen, seen)


fire_between.on_retry(fire_again)


@scenario("schedule-paused-between")
def pause_between(ctx: ScenarioContext) -> Iterator[None]:
    """An operator pauses a schedule that a slow worker has read: it does not fire."""
    ctx.run(_insert_due, _definition(ctx, missed="all", overlap="allow"))
    yield
    seen = ctx.run(_look)
    ctx.ol.pause_schedule(ctx.queue, reason="verify")
    ctx.run(_fire_as_seen, seen)


@pause_between.on_retry
def find_paused(ctx: ScenarioContext) -> Iterator[str]:
    """The slow worker fired nothing; a worker of another scenario may have, before the pause."""
    schedules = (one for one in ctx.ol.schedules() if one.name == ctx.queue)
    paused_at = next((one.paused_at for one in schedules), None)  # None: it was never created
    jobs = ctx.ol.jobs(queue=ctx.queue, limit=100)
    ticks = [job.key for job in jobs if paused_at is not None and job.created_at > paused_at]
    if ticks:
        yield f"a schedule fired after it was paused: {ticks}"


def _insert_paused(definition: ScheduleDefinition) -> Op[None]:
    """Insert a due schedule that is paused, so that no worker of another scenario fires it."""
    yield from _insert_due(definition)
    given = {"name": definition.name, "by": "verify", "reason": "verify"}
    yield Statement("pause_schedule", given)


@scenario("schedule-resumed")
def resume(ctx: ScenarioContext) -> Iterator[None]:
    """An operator resumes a schedule that would have been due during its pause."""
    ctx.run(_insert_paused, _definition(ctx, missed="all", overlap="allow"))
    yield
    ctx.ol.resume_schedule(ctx.queue)
    ctx.run(fire_due, ["mark"])


@resume.on_retry
def resume_again(ctx: ScenarioContext) -> Iterator[str]:
    """The ticks of the pause do not fire. (The next one may be due by now.)"""
    ctx.ol.resume_schedule(ctx.queue)
    while ctx.run(fire_due, ["mark"]).found:
        pass
    if len(ticks := _ticks(ctx)) > 1:
        yield f"a resumed schedule fired ticks of its pause: {ticks}"


@scenario("schedule-overlap")
def fire_over_a_run(ctx: ScenarioContext) -> Iterator[None]:
    """With an unfinished run, the next one waits for its end."""
    definition = _definition(ctx, overlap="queue")
    ctx.run(announce, [definition])
    manual = ctx.ol.run_schedule(ctx.queue)
    ctx.record_promise(manual.id)
    ctx.record_begun(ctx.claim(1))
    ctx.ol.delete_schedule(ctx.queue)
    ctx.run(_insert_due, definition)
    ctx.run(_set_active, ctx.queue, manual.id)
    yield
    ctx.run(fire_due, ["mark"])


def _set_active(name: str, job: str) -> Op[None]:
    given = {"name": name, "job": job, "active": f'["{job}"]', "recent": "[]"}
    yield Statement("add_schedule_run", given)


@fire_over_a_run.on_retry
def fire_over_it_again(ctx: ScenarioContext) -> Iterator[str]:
    ctx.run(fire_due, ["mark"])
    ticks = Counter({key: n for key, n in _ticks(ctx).items() if not key.endswith("/manual")})
    if ticks.total() != 1:
        yield f"one tick was due, and these have jobs: {ticks}"


@scenario("schedule-announce")
def announce_twice(ctx: ScenarioContext) -> Iterator[None]:
    """Two deployments: the second one's code declares another schedule."""
    yield
    ctx.run(announce, [_definition(ctx)])
    ctx.ol.change_schedule(ctx.queue, overlap="queue")
    ctx.run(announce, [_definition(ctx, every=2 * HOUR_S)])


@announce_twice.on_retry
def announce_again(ctx: ScenarioContext) -> Iterator[str]:
    ctx.run(announce, [_definition(ctx, every=2 * HOUR_S)])
    found = [one for one in ctx.ol.schedules() if one.name == ctx.queue]
    if [one.every for one in found] != [2 * HOUR_S]:
        yield f"the schedule is not what the code declares: {found}"


@scenario("schedule-rewind")
def set_back(ctx: ScenarioContext) -> Iterator[None]:
    """A schedule that fired by a clock years ahead is set back to now."""
    ctx.run(_insert_due, _definition(ctx, missed="all", overlap="allow"))
    ctx.run(_fire_years_ahead, ctx.queue)
    yield
    ctx.run(rewind)


@set_back.on_retry
def set_back_again(ctx: ScenarioContext) -> Iterator[str]:
    ctx.run(rewind)
    [found] = [one for one in ctx.ol.schedules() if one.name == ctx.queue]
    if found.next_at is None or (found.next_at - datetime.now(UTC)).total_seconds() > 2 * HOUR_S:
        yield f"a schedule waits until {found.next_at}, because the clock was ahead once"


def _fire_years_ahead(name: str) -> Op[None]:
    yield BEGIN
    given = {"names": json.dumps([name]), **ALL_JOBS.params}
    rows: Rows = yield Statement("hold_schedules", given)
    stored = StoredSchedule(*rows[0])
    false = (stored.now // HOUR_S) * HOUR_S + 2 * YEAR_S
    row = {
        "name": name, "seen": stored.next_at, "version": stored.version, "tick": false,
        "following": false + HOUR_S, "job": None, "active": "[]", "recent": "[]",
        "fired_ticks": json.dumps([[false, false]]), "fired": 0, "missed": 0, "skipped": 0,
        "late": 0, "note": None,
    }  # fmt: skip
    yield Statement("advance_schedules", rows=[row])


@scenario("schedule-broken")
def cannot_be_fired(ctx: ScenarioContext) -> Iterator[None]:
    """A schedule that cannot be fired is marked and left alone until an operator resumes it."""
    ctx.run(_insert_due, _definition(ctx, missed="all", overlap="allow"))
    yield
    ctx.run(break_schedule, ctx.queue, "the database refuses its job")
    ctx.run(fire_due, ["mark"])
    ctx.ol.resume_schedule(ctx.queue)


@cannot_be_fired.on_retry
def repair(ctx: ScenarioContext) -> Iterator[str]:
    ctx.ol.resume_schedule(ctx.queue)
    [found] = [one for one in ctx.ol.schedules() if one.name == ctx.queue]
    if found.error is not None or found.next_at is None:
        yield f"a schedule that was repaired does not fire: {found.error}"


@scenario("schedule-actions")
def act(ctx: ScenarioContext) -> Iterator[None]:
    """All operator actions on a schedule."""
    call = ctx.work.mark.using(queue=ctx.queue).job()
    end = datetime.now(UTC)
    yield
    ctx.ol.create_schedule(ctx.queue, call, every=HOUR_S)
    ctx.record_promise(ctx.ol.run_schedule(ctx.queue).id)
    ctx.ol.pause_schedule(ctx.queue, reason="verify")
    ctx.ol.resume_schedule(ctx.queue)
    ctx.ol.skip_schedule(ctx.queue, 2)
    ctx.ol.change_schedule(ctx.queue, cron="30 2 * * *", tz="Europe/Berlin")
    ctx.ol.reset_schedule(ctx.queue)
    for job in ctx.ol.backfill_schedule(ctx.queue, end - timedelta(days=2), end):
        ctx.record_promise(job.id)
    ctx.ol.schedule_report(ctx.queue)
    ctx.ol.delete_schedule(ctx.queue)
