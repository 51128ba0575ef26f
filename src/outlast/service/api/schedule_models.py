"""Models of requests and responses about schedules."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, Field

from ...model.schedule import SCHEDULE_OPTIONS
from ...ops.schedules import MAX_SKIPPED
from .request_models import Name, NewJobBody, Reason, RequestModel
from .response_models import JobLine


class ScheduleBody(RequestModel):
    name: Name


class ScheduleQuery(RequestModel):
    cursor: Name | None = Field(None, description="`next` of the previous page")
    limit: int | None = Field(None, ge=1, le=10_000, description="maximum schedules; default 50")
    text: Reason = Field("", description="only names that contain this, in any case")


class PauseScheduleBody(ScheduleBody):
    reason: Reason = ""


class SkipBody(ScheduleBody):
    n: int = Field(1, ge=1, le=MAX_SKIPPED, description="number of ticks")


class ChangeScheduleBody(ScheduleBody):
    """Options of a schedule; missing ones stay as they are."""

    cron: str | None = Field(None, max_length=200, description="such as `30 2 * * *` or `@daily`")
    every: str | float | None = Field(None, description="seconds, or a duration such as `15m`")
    tz: str | None = Field(None, max_length=100, description="time zone of `cron`; default: UTC")
    missed: Literal["once", "none", "all"] | None = None
    overlap: Literal["allow", "skip", "queue", "cancel"] | None = None
    jitter: str | float | None = Field(None, description="seconds, or a duration such as `30s`")
    grace: str | float | None = Field(None, description="with missed=none: later ticks are missed")

    def timing(self) -> dict[str, object]:
        given = {name: getattr(self, name) for name in SCHEDULE_OPTIONS}
        return {name: value for name, value in given.items() if value is not None}


class NewScheduleBody(ChangeScheduleBody):
    """A schedule to create: `cron` or `every`, and the job to enqueue at each tick."""

    job: NewJobBody


class BackfillBody(ScheduleBody):
    start: datetime
    end: datetime


class ScheduleView(BaseModel):
    """A schedule at the time of the read."""

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
    next_at: datetime | None = Field(description="next tick; null while paused or in error")
    last_tick: datetime | None
    last_job: str | None
    last_state: str | None = Field(description="state of the last job; null: none, or removed")
    fired: int
    missed_ticks: int
    skipped: int
    late: int
    note: str | None = Field(description="why a tick has no job")
    noted_at: datetime | None
    paused_at: datetime | None
    paused_by: str | None
    pause_reason: str | None
    error: str | None = Field(description="why it cannot be fired; null: no error")
    from_code: bool
    changes: dict[str, object] = Field(
        description="changes at run time, which override the declaration in code"
    )
    orphan: bool = Field(description="not announced by any deployment for a week")
    announced_at: datetime | None
    created_at: datetime | None
    changed_at: datetime | None


class ScheduleList(BaseModel):
    schedules: list[ScheduleView]
    count: int = Field(description="number of matching schedules on all pages")
    next: str | None = Field(description="cursor of the next page; null: no more")


class ScheduleDetails(ScheduleView):
    next_runs: list[datetime]
    history: list[JobLine]
    actions: list[dict[str, object]]


class Backfilled(BaseModel):
    schedule: str
    enqueued: int
