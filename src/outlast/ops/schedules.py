"""Operator actions on schedules: create, pause, run, skip, change, delete. Each is recorded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from typing import Any

from ..model.errors import InvalidOption, ScheduleExists, ScheduleNotFound
from ..model.fired_ticks import FiredTicks
from ..model.ids import new_job_id
from ..model.job import Job, read_job
from ..model.options import check_whole
from ..model.schedule import ScheduleSpec, manual_key, tick_key
from ..model.schedule_state import (
    EffectiveSchedule,
    Schedule,
    ScheduleDefinition,
    ScheduleReport,
    StoredSchedule,
    next_start,
    read_schedule,
    template_job,
)
from ..model.timestamps import to_datetime
from .access import ALL_JOBS, Access
from .announce import changed_schedule_row, interrupted, new_schedule_row
from .enqueue import enqueue
from .fire import MAX_RECENT_JOBS, job_ids
from .job_actions import record_action
from .operation import BEGIN, Op, Rows, Statement, creates_database

MAX_BACKFILL = 10_000  # per call
MAX_SKIPPED = 1000  # per call
SHOWN_RUNS = 10
SHOWN_ACTIONS = 20


@creates_database
def create(definition: ScheduleDefinition, by: str, action: str = "") -> Op[Schedule]:
    """Create a schedule at run time."""
    yield BEGIN
    if (yield from _is_done(action)):
        return (yield from schedule(definition.name))
    clock: Rows = yield Statement("schedule_clock")
    row = new_schedule_row(definition, float(clock[0][0]), code=False)
    made: Rows = yield Statement("insert_schedules", rows=[row])
    if not made:
        raise ScheduleExists(name=definition.name)
    yield from _record("create", definition, by, definition.spec.as_json(), action)
    return (yield from schedule(definition.name))


def schedule(name: str, reach: Access = ALL_JOBS) -> Op[Schedule]:
    rows: Rows = yield Statement("schedule", {"name": name, **reach.params})
    if not rows:
        raise ScheduleNotFound(name=name)
    state, *row = rows[0]
    return read_schedule(row, state)


def report(name: str, reach: Access = ALL_JOBS) -> Op[ScheduleReport]:
    """A schedule with its next runs, latest jobs and recorded actions."""
    rows: Rows = yield Statement("schedule", {"name": name, **reach.params})
    if not rows:
        raise ScheduleNotFound(name=name)
    state, *row = rows[0]
    stored = StoredSchedule(*row)
    ids = json.dumps(job_ids(stored.recent))
    jobs: Rows = yield Statement("schedule_history", {"ids": ids, **reach.params})
    actions = yield from _actions(name, reach)
    shown = read_schedule(row, state)
    return ScheduleReport(shown, _next_runs(stored), [read_job(job) for job in jobs], actions)


def _actions(name: str, reach: Access) -> Op[list[dict[str, object]]]:
    """The recorded actions of a schedule, without those of another tenant's schedule of this
    name."""
    given = {"data": _contains("schedule", name), "limit": SHOWN_ACTIONS}
    rows: Rows = yield Statement("schedule_actions", given)
    done = [(kind, json.loads(data), at) for kind, data, at in rows]
    return [
        {"action": kind.removeprefix("schedule-"), "at": to_datetime(at), **facts}
        for kind, facts, at in done
        if reach.allows(facts.pop("tenant"), facts.pop("queue"))
    ]


def _contains(name: str, value: str) -> str:
    """A LIKE pattern for the text of a JSON object that has this value."""
    text = f'"{name}": {json.dumps(value)}'
    for wild in "!%_":
        text = text.replace(wild, f"!{wild}")
    return f"%{text}%"


def _next_runs(stored: StoredSchedule) -> list[Any]:
    if stored.paused_at is not None or stored.error is not None or stored.next_at is None:
        return []
    spec = stored.read_spec()
    with suppress(
        KeyError, ValueError, OSError
    ):  # a time zone that this machine lacks: firing reports it
        return spec.runs(max(stored.next_at, stored.now) - 0.001, SHOWN_RUNS)
    return []


def pause(name: str, by: str, reason: str, reach: Access = ALL_JOBS) -> Op[Schedule]:
    """Pause a schedule until it is resumed; pausing twice is one pause."""
    yield BEGIN
    stored = yield from _held(name, reach)
    given = {"name": name, "by": by, "reason": reason or None}
    changed: Rows = yield Statement("pause_schedule", given)
    if changed:
        yield from _record("pause", stored, by, {"reason": reason})
    return (yield from schedule(name, reach))


def resume(name: str, by: str, reach: Access = ALL_JOBS) -> Op[Schedule]:
    """Resume a schedule with its next tick; ticks during the pause are dropped. A schedule in error
    is tried again."""
    yield BEGIN
    stored = yield from _held(name, reach)
    spec = stored.read_spec()
    start = _checked_start(spec, stored)
    given = {"name": name, "next": start, "fired_ticks": interrupted(stored)}
    changed: Rows = yield Statement("resume_schedule", given)
    if changed:
        yield from _record("resume", stored, by, {})
    return (yield from schedule(name, reach))


def _checked_start(spec: ScheduleSpec, stored: StoredSchedule) -> float | None:
    """Raise the stored error of a schedule that cannot fire."""
    ScheduleSpec.of(spec.as_json())
    return next_start(spec, stored, stored.now)


def run_now(name: str, by: str, id: str, reach: Access = ALL_JOBS) -> Op[Job]:
    """Enqueue a job of a schedule now, even if it is paused. Its ticks stay as they are."""
    yield BEGIN
    stored = yield from _held(name, reach)
    key = manual_key(name, stored.now)
    [job] = yield from enqueue([template_job(stored.read_job(), id, key, None)])
    if id in job_ids(stored.recent):
        return job  # sent again after a lost response
    yield Statement(
        "add_schedule_run",
        {
            "name": name,
            "job": job.id,
            "active": json.dumps([*job_ids(stored.active), job.id][-MAX_RECENT_JOBS:]),
            "recent": json.dumps([*job_ids(stored.recent), job.id][-MAX_RECENT_JOBS:]),
        },
    )
    yield from _record("run", stored, by, {"job": job.id})
    return job


def skip(name: str, n: int, by: str, action: str = "", reach: Access = ALL_JOBS) -> Op[Schedule]:
    """Skip the next ticks of a schedule."""
    check_whole("n", n, 1, MAX_SKIPPED)
    yield BEGIN
    stored = yield from _held(name, reach)
    if (yield from _is_done(action)):
        return (yield from schedule(name, reach))
    spec = stored.read_spec()
    start = stored.next_at if stored.next_at is not None else stored.now
    coming = list(islice(spec.ticks(start), n))
    following = coming[n - 1] if len(coming) == n else None
    fired = FiredTicks.read(stored.fired_ticks).adding([start, *coming[: n - 1]], missed=0)
    note = f"skipped: {by} skipped {n} of its ticks"
    given = {"name": name, "next": following, "fired_ticks": fired.text()}
    yield Statement("skip_ticks", {**given, "skipped": n, "note": note})
    yield from _record("skip", stored, by, {"n": n}, action)
    return (yield from schedule(name, reach))


def change(
    name: str,
    given: Mapping[str, Any],
    job: Mapping[str, Any] | None,
    by: str,
    reach: Access = ALL_JOBS,
) -> Op[Schedule]:
    """Change a schedule at run time; the change overrides the declaration until it is reset."""
    if not given and job is None:
        raise InvalidOption(option="cron", reason="or another change must be given")
    yield BEGIN
    stored = yield from _held(name, reach)
    if job is not None and not reach.allows(str(job["tenant"]), str(job["queue"])):
        raise ScheduleNotFound(name=name)
    spec = stored.read_spec().changed(given)
    effective = EffectiveSchedule(spec, stored.read_job() if job is None else job)
    code, changes = stored.read_code(), None
    if code is not None:
        changes = stored.read_changes()
        changed = {key: spec.as_json()[key] for key in given} | _replaced(given)
        changes["spec"] = {**changes.get("spec", {}), **changed}
        if job is not None:
            changes["job"] = dict(job)
    row = changed_schedule_row(stored, effective, code, changes, stored.now)
    yield Statement("change_schedules", rows=[row])
    facts = {key: spec.as_json()[key] for key in given}
    yield from _record("change", stored, by, facts if job is None else {**facts, "job": True})
    return (yield from schedule(name, reach))


def _replaced(given: Mapping[str, object]) -> dict[str, None]:
    """A period replaces a cron expression, even a changed one, and vice versa."""
    if given.get("every") is not None:
        return {"cron": None, "tz": None}
    return {"every": None} if given.get("cron") is not None else {}


def reset(name: str, by: str, reach: Access = ALL_JOBS) -> Op[Schedule]:
    """Reset a schedule to its declaration, and to the next tick from now that did not fire. A
    schedule made at run time has no changes to reset."""
    yield BEGIN
    stored = yield from _held(name, reach)
    code = stored.read_code()
    effective = (
        EffectiveSchedule(stored.read_spec(), stored.read_job())
        if code is None
        else EffectiveSchedule.of(code, {})
    )
    row = changed_schedule_row(stored, effective, code, None, stored.now)
    row["next"] = next_start(effective.spec, stored, stored.now)
    row["fired_ticks"] = interrupted(stored)
    yield Statement("change_schedules", rows=[row])
    yield from _record("reset", stored, by, {})
    return (yield from schedule(name, reach))


def backfill(
    name: str, start: float, end: float, by: str, reach: Access = ALL_JOBS
) -> Op[list[Job]]:
    """Enqueue the jobs of past ticks between two times, without the end. A tick that has a job gets
    no second one. Returns the new jobs."""
    if start > end:
        raise InvalidOption(option="start", reason="must not be later than end")
    yield BEGIN
    stored = yield from _held(name, reach)
    spec, template = stored.read_spec(), stored.read_job()
    until = min(end, stored.now)
    ticks = []
    for tick in spec.ticks(start - 0.001):
        if tick >= until:
            break
        ticks.append(tick)
        if len(ticks) > MAX_BACKFILL:
            raise InvalidOption(
                option="start",
                reason=f"is more than {MAX_BACKFILL:,} ticks before end: backfill a shorter span",
            )
    jobs = [template_job(template, new_job_id(), tick_key(name, tick), None) for tick in ticks]
    made: Rows = (yield Statement("insert_jobs", rows=[j.row() for j in jobs])) if jobs else []
    ids = json.dumps([id for id, *_ in made])
    rows: Rows = yield Statement("schedule_history", {"ids": ids, **ALL_JOBS.params})
    facts = {"start": start, "end": until, "number": len(made)}
    yield from _record("backfill", stored, by, facts)
    return sorted((read_job(row) for row in rows), key=lambda job: str(job.key))


def delete(name: str, by: str, action: str = "", reach: Access = ALL_JOBS) -> Op[None]:
    """Delete a schedule; its jobs stay. A declared one is created again when a worker starts."""
    yield BEGIN
    if (yield from _is_done(action)):
        return
    stored = yield from _held(name, reach)
    yield Statement("delete_schedule", {"name": name})
    yield from _record("delete", stored, by, {}, action)


def _held(name: str, reach: Access) -> Op[StoredSchedule]:
    given = {"names": json.dumps([name]), **reach.params}
    rows: Rows = yield Statement("hold_schedules", given)
    if not rows:
        raise ScheduleNotFound(name=name)
    return StoredSchedule(*rows[0])


def _record(
    kind: str,
    on: ScheduleDefinition | StoredSchedule,
    by: str,
    data: Mapping[str, object],
    action: str = "",
) -> Op[None]:
    owner = {"tenant": on.tenant, "queue": on.queue}  # the owner decides who may see the record
    facts = {"by": by, "schedule": on.name, **owner, **data}
    if action:
        facts["request"] = action
    yield from record_action(f"schedule-{kind}", [None], facts)


def _is_done(action: str) -> Op[bool]:
    """Whether an action is already recorded: the request was sent again after a lost response."""
    if not action:
        return False
    given = {"data": _contains("request", action), "limit": 1}
    rows: Rows = yield Statement("schedule_actions", given)
    return bool(rows)
