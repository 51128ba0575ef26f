"""Verbs for schedules: list, create at run time, pause, run, skip, change, backfill."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Unpack

from ..model.errors import InvalidOption
from ..model.ids import new_job_id
from ..model.job import Job
from ..model.lifecycle import State
from ..model.options import check_name, check_whole
from ..model.schedule import ScheduleOptions
from ..model.schedule_state import (
    Schedule,
    ScheduleDefinition,
    ScheduleReport,
    job_template,
)
from ..model.task import Call
from ..model.timestamps import to_epoch
from ..ops import schedule_pages as pages
from ..ops import schedules as operations
from ..ops.schedule_pages import SchedulePage
from .faces import Face
from .verb_arguments import actor, check_reason, check_text


async def schedules(
    on: Face, *, limit: int | None = None, after: str | None = None
) -> list[Schedule]:
    """Every schedule, by name: declared in code or created at run time; or at most `limit` of
    those whose names follow `after`."""
    if limit is not None:
        check_whole("limit", limit, 1, pages.MAX_SCHEDULES)
    last = "" if after is None else check_name("after", after)
    most = pages.MAX_SCHEDULES if limit is None else limit
    return await on.run(partial(pages.schedules, after=last, limit=most))


async def schedule_page(on: Face, limit: int, after: str | None) -> SchedulePage:
    """A page of schedules with the number of all, for the command line."""
    last = "" if after is None else check_name("after", after)
    return await on.run(partial(pages.schedule_page, after=last, limit=limit))


async def schedule_report(on: Face, name: str) -> ScheduleReport:
    """A schedule with its next ten runs, its latest jobs, and recorded actions."""
    return await on.run(operations.report, check_name("name", name))


async def create_schedule(
    on: Face, name: str, job: Call, **options: Unpack[ScheduleOptions]
) -> Schedule:
    """Create a schedule at run time; it starts with its next tick. Options: cron or every, tz,
    missed, overlap, jitter, grace."""
    definition = ScheduleDefinition.of(name, job, options)
    return await on.run(operations.create, definition, actor(), new_job_id())


async def pause_schedule(on: Face, name: str, reason: str = "") -> Schedule:
    """Pause a schedule until it is resumed. Survives restarts and deployments."""
    return await on.run(operations.pause, check_text("name", name), actor(), check_reason(reason))


async def resume_schedule(on: Face, name: str) -> Schedule:
    """Resume a schedule with its next tick; ticks during the pause are dropped."""
    return await on.run(operations.resume, check_text("name", name), actor())


async def run_schedule(on: Face, name: str) -> Job:
    """Enqueue a job of a schedule now, even if it is paused. Its ticks stay as they are."""
    job = await on.run(operations.run_now, check_text("name", name), actor(), new_job_id())
    await on.notify([job.queue])
    return job


async def skip_schedule(on: Face, name: str, n: int = 1) -> Schedule:
    """Skip the next tick of a schedule, or the next `n`."""
    return await on.run(operations.skip, check_text("name", name), n, actor(), new_job_id())


async def change_schedule(
    on: Face, name: str, job: Call | None = None, **options: Unpack[ScheduleOptions]
) -> Schedule:
    """Change a schedule at run time. The change overrides the code's declaration until it is
    reset."""
    given = {key: value for key, value in options.items() if value is not None}
    template = None if job is None else job_template(job)
    return await on.run(operations.change, check_text("name", name), given, template, actor())


async def reset_schedule(on: Face, name: str) -> Schedule:
    """Reset a schedule to the code's declaration."""
    return await on.run(operations.reset, check_text("name", name), actor())


async def backfill_schedule(on: Face, name: str, start: datetime, end: datetime) -> Sequence[Job]:
    """Enqueue the jobs of past ticks between two times, without the end. A tick that has a job gets
    no second one. Returns the new jobs."""
    since, until = to_epoch("start", start), to_epoch("end", end)
    if since is None or until is None:
        raise InvalidOption(option="start", reason="and end must be datetimes with a time zone")
    made = await on.run(operations.backfill, check_text("name", name), since, until, actor())
    await on.notify(sorted({job.queue for job in made if job.state is State.READY}))
    return made


async def delete_schedule(on: Face, name: str) -> None:
    """Delete a schedule; its jobs stay. A declared one is created again when a worker starts."""
    await on.run(operations.delete, check_text("name", name), actor(), new_job_id())
