"""A schedule as stored, and how code and operators change it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from .errors import InvalidOption
from .fired_ticks import FiredTicks
from .job import Job, NewJob, lenient_json, read_args
from .options import check_name
from .schedule import ScheduleSpec
from .task import OPTIONS_OF_ONE_JOB, Call
from .timestamps import to_datetime

ORPHANED_AFTER_S = 7 * 86400.0  # since the last announcement by code
MAX_SCHEDULE_NAME = 200  # characters; the keys of its jobs contain it
CLOCK_WAS_AHEAD_S = 86400.0  # a creation time this far in the future is from a wrong clock


@dataclass(frozen=True, slots=True)
class ScheduleDefinition:
    """A schedule as declared in code or created at run time: its times and its call."""

    name: str
    spec: ScheduleSpec
    job: Mapping[str, Any]  # columns of its jobs

    @classmethod
    def of(cls, name: str, call: object, given: Mapping[str, object]) -> ScheduleDefinition:
        check_name("name", name)
        if len(name) > MAX_SCHEDULE_NAME:
            raise InvalidOption(
                option="name", reason=f"must have at most {MAX_SCHEDULE_NAME} characters"
            )
        return cls(name, ScheduleSpec.of(given), job_template(call))

    @property
    def task(self) -> str:
        return str(self.job["task"])

    @property
    def tenant(self) -> str:
        return str(self.job["tenant"])

    @property
    def queue(self) -> str:
        return str(self.job["queue"])

    def content(self) -> dict[str, object]:
        return {"spec": self.spec.as_json(), "job": dict(self.job)}


def job_template(call: object) -> dict[str, object]:
    """The columns that all jobs of a schedule share. Invalid arguments are refused."""
    if not isinstance(call, Call):
        raise InvalidOption(option="job", reason=f"must be task.job(…), not {call!r:.80}")
    if any(getattr(call.options, name) is not None for name in OPTIONS_OF_ONE_JOB):
        raise InvalidOption(
            option=", ".join(OPTIONS_OF_ONE_JOB), reason="apply to one job, not to a schedule"
        )
    job = call.new_job("")
    row = job.row()
    del row["id"]
    if job.hooks is not None:
        row["hooks"] = _without_ids(job.hooks)
    return row


def _without_ids(hooks: str) -> str:
    """Ids are generated for each job; without them, the same code announces the same text."""
    by_state = json.loads(hooks)
    return json.dumps(
        {
            state: [
                {name: hook[name] for name in hook if name != "id"} | {"id": ""} for hook in rows
            ]
            for state, rows in by_state.items()
        }
    )


@dataclass(frozen=True, slots=True)
class StoredSchedule:
    """A row of the table; texts are JSON."""

    name: str
    tenant: str
    queue: str
    task: str
    spec: str
    job: str
    code: str | None
    changes: str | None
    version: int
    next_at: float | None
    last_tick: float | None
    last_job: str | None
    active: str
    recent: str
    fired_ticks: str
    fired: int
    missed: int
    skipped: int
    late: int
    note: str | None
    noted_at: float | None
    paused_at: float | None
    paused_by: str | None
    pause_reason: str | None
    error: str | None
    announced_at: float | None
    created_at: float
    changed_at: float
    now: float

    def read_spec(self) -> ScheduleSpec:
        return ScheduleSpec.stored(self.spec)

    def read_job(self) -> dict[str, Any]:
        return dict(json.loads(self.job))

    def read_code(self) -> dict[str, Any] | None:
        return None if self.code is None else json.loads(self.code)

    def read_changes(self) -> dict[str, Any]:
        return {} if self.changes is None else json.loads(self.changes)


SCHEDULE_COLUMNS = tuple(spec.name for spec in fields(StoredSchedule))


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule as callers see it."""

    name: str
    task: str
    queue: str
    tenant: str
    args: Any
    cron: str | None
    every: float | None
    tz: str
    missed: str
    overlap: str
    jitter: float
    grace: float
    next_at: datetime | None  # next tick; None while paused or failing
    last_tick: datetime | None
    last_job: str | None
    fired: int
    missed_ticks: int
    skipped: int
    late: int
    note: str | None  # why a tick has no job, and since when
    noted_at: datetime | None
    paused_at: datetime | None
    paused_by: str | None
    pause_reason: str | None
    error: str | None
    from_code: bool
    changes: dict[str, Any]  # made at run time, over the declaration
    orphan: bool  # not announced by any deployment for a week
    announced_at: datetime | None
    created_at: datetime | None
    changed_at: datetime | None
    last_state: str | None = None  # state of its last job

    @property
    def paused(self) -> bool:
        return self.paused_at is not None

    def as_json(self) -> dict[str, Any]:
        def plain(value: object) -> Any:
            return value.isoformat() if isinstance(value, datetime) else value

        return {name: plain(getattr(self, name)) for name in self.__slots__}


def read_schedule(row: Sequence[Any], last_state: str | None = None) -> Schedule:
    """A schedule from its row; unreadable columns do not fail."""
    stored = StoredSchedule(*row)
    spec = lenient_json(stored.spec)
    spec_json = {**ScheduleSpec().as_json(), **(spec if isinstance(spec, dict) else {})}
    job = lenient_json(stored.job)
    changes = lenient_json(stored.changes) if stored.changes else {}
    waits = stored.paused_at is None and stored.error is None
    since = stored.now - (stored.announced_at or stored.now)
    return Schedule(
        name=stored.name, task=stored.task, queue=stored.queue, tenant=stored.tenant,
        args=read_args(job.get("args", "{}")) if isinstance(job, dict) else None,
        **{name: spec_json[name] for name in ScheduleSpec().as_json()},
        next_at=to_datetime(stored.next_at) if waits else None,
        last_tick=to_datetime(stored.last_tick), last_job=stored.last_job,
        fired=stored.fired, missed_ticks=stored.missed, skipped=stored.skipped, late=stored.late,
        note=stored.note, noted_at=to_datetime(stored.noted_at),
        paused_at=to_datetime(stored.paused_at), paused_by=stored.paused_by,
        pause_reason=stored.pause_reason, error=stored.error, from_code=stored.code is not None,
        changes=_shown_changes(changes),
        orphan=stored.code is not None and since > ORPHANED_AFTER_S,
        announced_at=to_datetime(stored.announced_at), created_at=to_datetime(stored.created_at),
        changed_at=to_datetime(stored.changed_at), last_state=last_state,
    )  # fmt: skip


def _shown_changes(changes: object) -> dict[str, object]:
    if not isinstance(changes, dict):
        return {}
    spec = changes.get("spec")
    shown = dict(spec) if isinstance(spec, dict) else {}
    if isinstance(job := changes.get("job"), dict):
        shown["args"] = read_args(job.get("args", "{}"))
    return shown


@dataclass(frozen=True, slots=True)
class EffectiveSchedule:
    """The effective schedule: the declaration, overridden by changes at run time."""

    spec: ScheduleSpec
    job: Mapping[str, Any]

    @classmethod
    def of(cls, code: Mapping[str, Any], changes: Mapping[str, Any]) -> EffectiveSchedule:
        spec = ScheduleSpec.of(code["spec"])
        if changes.get("spec"):
            spec = spec.changed(changes["spec"])
        return cls(spec, changes.get("job") or code["job"])

    def row(self) -> dict[str, Any]:
        """The columns to store."""
        job = dict(self.job)
        return {
            "tenant": job["tenant"],
            "queue": job["queue"],
            "task": job["task"],
            "spec": json.dumps(self.spec.as_json()),
            "job": json.dumps(job),
        }


def next_start(spec: ScheduleSpec, stored: StoredSchedule | None, now: float) -> float | None:
    """The first tick from now that was not handled. A clock that was set back repeats no tick, and
    no tick is earlier than the schedule, unless the clock was far ahead when it was created."""
    if stored is None:
        return spec.next_tick(now)
    since = stored.created_at if stored.created_at <= now + CLOCK_WAS_AHEAD_S else now
    return FiredTicks.read(stored.fired_ticks).first_free(spec, max(now, since))


def template_job(template: Mapping[str, Any], id: str, key: str, at: float | None) -> NewJob:
    known = {name: template[name] for name in _NEW_JOB_FIELDS if name in template}
    return NewJob(**{**known, "id": id, "key": key, "at": at, "delay": None})


_NEW_JOB_FIELDS = [spec.name for spec in fields(NewJob) if spec.name not in {"id", "key", "at"}]


@dataclass(frozen=True, slots=True)
class ScheduleReport:
    """A schedule with its next runs and latest jobs."""

    schedule: Schedule
    next_runs: list[datetime]
    history: list[Job]
    actions: list[dict[str, Any]]
