"""Fire due schedules: insert their jobs and advance their next ticks, in one transaction.

A row advances only if it is unchanged since it was read (name, next tick, version, not paused). The
job's key, made of name and tick, prevents a second job even if a tick fires twice. Only the
database's clock is used; if it steps back, `next_at` does not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from ..model.errors import InvalidOption, JobNotFound, KeyConflict, TooLate
from ..model.fired_ticks import FiredTicks
from ..model.firing import MAX_ACTIVE_JOBS, Firing, Run, decide_firing
from ..model.ids import new_job_id
from ..model.job import NewJob
from ..model.lifecycle import State
from ..model.safe_text import error_summary
from ..model.schedule import ScheduleSpec, tick_key, tick_of_key
from ..model.schedule_state import StoredSchedule, template_job
from ..model.ticks import as_key
from .enqueue import enqueue
from .job_actions import cancel
from .operation import BEGIN, Op, Rows, Statement

MAX_RECENT_JOBS = 20  # per schedule, for its history
FIRE_BATCH = 1000  # schedules per transaction


@dataclass(slots=True)
class FireResult:
    """The result of one transaction."""

    found: int = 0
    fired: int = 0  # jobs
    missed: int = 0  # ticks
    skipped: int = 0  # ticks
    late: int = 0  # jobs
    broken: dict[str, str] = field(default_factory=dict)  # schedules, with the error
    queues: set[str] = field(default_factory=set)  # queues with a ready job
    cancelled: int = 0

    def add(self, other: FireResult) -> None:
        self.found += other.found
        self.fired += other.fired
        self.missed += other.missed
        self.skipped += other.skipped
        self.late += other.late
        self.broken |= other.broken
        self.queues |= other.queues
        self.cancelled += other.cancelled


class _Fired(NamedTuple):
    """A schedule whose firing is decided."""

    schedule: StoredSchedule
    firing: Firing
    active: list[str]  # unfinished earlier jobs
    jobs: list[NewJob]
    fired: FiredTicks


def fire_due(
    tasks: Sequence[str], limit: int = FIRE_BATCH, tried: list[str] | None = None
) -> Op[FireResult]:
    """Fire up to `limit` due schedules of these tasks. `tried` collects their names: the caller may
    have to find the one that fails."""
    yield BEGIN
    given = {"tasks": json.dumps(list(tasks)), "limit": limit}
    rows: Rows = yield Statement("due_schedules", given)
    due = [StoredSchedule(*row) for row in rows]
    if tried is not None:
        tried[:] = [schedule.name for schedule in due]
    if not due:
        return FireResult()
    runs = yield from _earlier_runs(due)
    result = FireResult(found=len(due))
    decided = _decide_all(due, runs, result.broken)
    yield from _break(due, result.broken)
    yield from _advance(decided, result)
    return result


def _earlier_runs(due: Sequence[StoredSchedule]) -> Op[dict[str, Run]]:
    """The unfinished jobs of these schedules, if a policy needs them."""
    asking = [one for one in due if '"overlap": "allow"' not in one.spec]
    ids = sorted({id for one in asking for id in job_ids(one.active)})
    if not ids:
        return {}
    rows: Rows = yield Statement("schedule_runs", {"ids": json.dumps(ids)})
    return {
        id: Run(id, state == State.RUNNING or attempt > 0, _tick_name(key))
        for id, state, attempt, key in rows
        if not State(state).final
    }


def _decide_all(
    due: Sequence[StoredSchedule], runs: Mapping[str, Run], broken: dict[str, str]
) -> list[_Fired]:
    """A schedule that cannot be read (a missing time zone, a damaged row) stops alone."""
    decided = []
    for schedule in due:
        try:
            decided.append(_decide(schedule, schedule.read_spec(), runs))
        except Exception as error:
            broken[schedule.name] = _why_broken(schedule, error)
    return decided


def _why_broken(schedule: StoredSchedule, error: Exception) -> str:
    """The error message that validation gives, if it fails."""
    try:
        ScheduleSpec.of(json.loads(schedule.spec))
    except InvalidOption as refusal:
        return str(refusal)
    except Exception:
        return error_summary(error)
    return error_summary(error)


def _tick_name(key: str | None) -> str:
    tick = tick_of_key(key)
    return "an earlier tick" if tick is None else as_key(tick.timestamp())


def job_ids(text: str) -> list[str]:
    """A damaged list of earlier jobs counts as empty."""
    with suppress(ValueError):
        found = json.loads(text)
        if isinstance(found, list):
            return [id for id in found if isinstance(id, str) and len(id) == 36]
    return []


def _decide(schedule: StoredSchedule, spec: ScheduleSpec, runs: Mapping[str, Run]) -> _Fired:
    assert schedule.next_at is not None
    known = job_ids(schedule.active)
    active = known if spec.overlap == "allow" else [id for id in known if id in runs]
    going = [runs[id] for id in active if id in runs]
    fired = FiredTicks.read(schedule.fired_ticks)
    firing = decide_firing(spec, schedule.next_at, schedule.now, going, fired)
    template = schedule.read_job()
    jobs = [_job(schedule, spec, template, tick, after) for tick, after in firing.jobs]
    return _Fired(schedule, firing, active, jobs, fired.adding(firing.ticks, firing.missed))


def _job(
    schedule: StoredSchedule,
    spec: ScheduleSpec,
    template: Mapping[str, object],
    tick: float,
    after: tuple[str, ...],
) -> NewJob:
    at = tick + spec.delay(schedule.name, tick)
    job = template_job(
        template, new_job_id(), tick_key(schedule.name, tick), at if at > schedule.now else None
    )
    if after:
        job.after, job.needs, job.waits_for = after, "finished", len(after)
    return job


def _advance(decided: Sequence[_Fired], result: FireResult) -> Op[None]:
    """Update the rows first, then insert jobs for the updated ones."""
    rows: Rows = yield Statement("advance_schedules", rows=[_row(one) for one in decided])
    moved = {name for (name,) in rows}
    won = [one for one in decided if one.schedule.name in moved]
    plain = [job for one in won for job in one.jobs if not job.after]
    if plain:
        inserted: Rows = yield Statement("insert_jobs", rows=[job.row() for job in plain])
        queues = {job.id: job.queue for job in plain}
        result.queues |= {queues[id] for id, state, *_ in inserted if state == State.READY}
    for one in won:
        yield from _cancel_earlier(one, result)
        yield from _queue_behind([job for job in one.jobs if job.after])
        result.fired += len(one.jobs)
        result.missed += one.firing.missed
        result.skipped += one.firing.skipped
        result.late += one.firing.late


def _row(one: _Fired) -> dict[str, object]:
    schedule, firing, ids = one.schedule, one.firing, [job.id for job in one.jobs]
    seen, following = schedule.next_at, firing.following
    return {
        "name": schedule.name,
        "seen": seen,
        "version": schedule.version,
        "following": following,
        "tick": max([seen or 0.0, *firing.ticks]),
        "job": ids[-1] if ids else None,
        "active": json.dumps([*one.active, *ids][-MAX_ACTIVE_JOBS:]),
        "recent": json.dumps([*job_ids(schedule.recent), *ids][-MAX_RECENT_JOBS:]),
        "fired_ticks": one.fired.text(),
        "fired": len(ids),
        "missed": firing.missed,
        "skipped": firing.skipped,
        "late": firing.late,
        "note": firing.note,
    }


def _cancel_earlier(one: _Fired, result: FireResult) -> Op[None]:
    for id in one.firing.cancel:
        by = f"schedule {one.schedule.name}"
        with suppress(TooLate, JobNotFound):  # already finished
            yield from cancel(id, by, "its next tick is due")
            result.cancelled += 1


def _queue_behind(jobs: Sequence[NewJob]) -> Op[None]:
    for job in jobs:
        with suppress(KeyConflict):  # this tick already has a job
            yield from enqueue([job])


def _break(due: Sequence[StoredSchedule], broken: Mapping[str, str]) -> Op[None]:
    rows = [
        {"name": one.name, "version": one.version, "error": broken[one.name]}
        for one in due
        if one.name in broken
    ]
    if rows:
        yield Statement("break_schedules", rows=rows)


def break_schedule(name: str, error: str) -> Op[bool]:
    """Mark a schedule whose job the database refuses, so that the others continue."""
    yield BEGIN
    given = {"names": json.dumps([name]), "tenant": None, "queues": None}
    rows: Rows = yield Statement("hold_schedules", given)
    held = [StoredSchedule(*row) for row in rows]
    yield from _break(held, dict.fromkeys((one.name for one in held), error))
    return bool(held)


def next_due(tasks: Sequence[str]) -> Op[tuple[float | None, float]]:
    """The time when the next schedule of these tasks is due, and the current time."""
    clock: Rows = yield Statement("schedule_clock")
    rows: Rows = yield Statement("next_due_schedule", {"tasks": json.dumps(list(tasks))})
    return (rows[0][0] if rows else None), clock[0][0]
