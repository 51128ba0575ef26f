"""Schedules: next and last runs, and operator actions."""

from __future__ import annotations

from functools import partial
from typing import Any

from pydantic import BaseModel

from ...model.api_token import Scope
from ...model.ids import new_job_id
from ...model.lifecycle import State
from ...model.schedule_state import ScheduleDefinition
from ...model.timestamps import to_epoch
from ...ops import schedules
from ...ops.schedule_pages import schedule_page
from ..request import RequestContext
from ..route import Route
from . import PREFIX
from .enqueue import task_call
from .job_actions import notify_workers
from .jobs import job_summary, jsonable
from .params import limit_of
from .response_models import JobView
from .schedule_models import (
    BackfillBody,
    Backfilled,
    ChangeScheduleBody,
    NewScheduleBody,
    PauseScheduleBody,
    ScheduleBody,
    ScheduleDetails,
    ScheduleList,
    ScheduleQuery,
    ScheduleView,
    SkipBody,
)


async def list_schedules(call: RequestContext) -> dict[str, object]:
    params: ScheduleQuery = call.query
    limit = limit_of(params.limit, 50, call.service.settings.max_page)
    asked = partial(schedule_page, after=params.cursor or "", limit=limit, text=params.text)
    page = await call.ol.store.arun(asked, call.reach)
    listed = [one.as_json() for one in page.schedules]
    return {"schedules": listed, "count": page.count, "next": page.next}


async def show_schedule(call: RequestContext) -> dict[str, object]:
    report = await call.ol.store.arun(schedules.report, call.query.name, call.reach)
    return {
        **report.schedule.as_json(),
        "next_runs": [run.isoformat() for run in report.next_runs],
        "history": [job_summary(job) for job in report.history],
        "actions": [jsonable(action) for action in report.actions],
    }


async def create_schedule(call: RequestContext) -> dict[str, object]:
    body: NewScheduleBody = call.body
    definition = ScheduleDefinition.of(body.name, task_call(call, body.job), body.timing())
    made = await call.ol.store.arun(schedules.create, definition, call.by, new_job_id())
    return made.as_json()


async def pause_schedule(call: RequestContext) -> dict[str, object]:
    body: PauseScheduleBody = call.body
    done = await call.ol.store.arun(schedules.pause, body.name, call.by, body.reason, call.reach)
    return done.as_json()


async def resume_schedule(call: RequestContext) -> dict[str, object]:
    done = await call.ol.store.arun(schedules.resume, call.body.name, call.by, call.reach)
    return done.as_json()


async def run_schedule(call: RequestContext) -> dict[str, object]:
    asked = call.body.name, call.by, new_job_id(), call.reach
    job = await call.ol.store.arun(schedules.run_now, *asked)
    await notify_workers(call, job.queue)
    return job.as_json()


async def skip_schedule(call: RequestContext) -> dict[str, object]:
    body: SkipBody = call.body
    asked = body.name, body.n, call.by, new_job_id(), call.reach
    return (await call.ol.store.arun(schedules.skip, *asked)).as_json()


async def change_schedule(call: RequestContext) -> dict[str, object]:
    body: ChangeScheduleBody = call.body
    asked = body.name, body.timing(), None, call.by, call.reach
    return (await call.ol.store.arun(schedules.change, *asked)).as_json()


async def reset_schedule(call: RequestContext) -> dict[str, object]:
    done = await call.ol.store.arun(schedules.reset, call.body.name, call.by, call.reach)
    return done.as_json()


async def backfill_schedule(call: RequestContext) -> dict[str, object]:
    body: BackfillBody = call.body
    start, end = to_epoch("start", body.start), to_epoch("end", body.end)
    asked = body.name, start or 0.0, end or 0.0, call.by, call.reach
    made = await call.ol.store.arun(schedules.backfill, *asked)
    if queues := {job.queue for job in made if job.state is State.READY}:
        await notify_workers(call, *sorted(queues))
    return {"schedule": body.name, "enqueued": len(made)}


async def delete_schedule(call: RequestContext) -> None:
    asked = call.body.name, call.by, new_job_id(), call.reach
    await call.ol.store.arun(schedules.delete, *asked)


def _action(
    verb: str,
    endpoint: Any,
    summary: str,
    request: type[BaseModel] = ScheduleBody,
    response: type[BaseModel] | None = ScheduleView,
) -> Route:
    return Route(
        "POST", f"{PREFIX}/schedules/{verb}", Scope.ADMIN, endpoint, summary,
        request=request, response=response, status=200 if response else 204, statuses=(404,),
    )  # fmt: skip


ROUTES = (
    Route(
        "GET", f"{PREFIX}/schedules", Scope.READ, list_schedules,
        "A page of the schedules by name, with their next and last runs",
        query=ScheduleQuery, response=ScheduleList,
    ),
    Route(
        "GET", f"{PREFIX}/schedules/show", Scope.READ, show_schedule,
        "One schedule with its next ten runs, its latest jobs and recorded actions",
        query=ScheduleBody, response=ScheduleDetails, statuses=(404,),
    ),
    Route(
        "POST", f"{PREFIX}/schedules", Scope.ADMIN, create_schedule,
        "Create a schedule at run time",
        request=NewScheduleBody, response=ScheduleView, status=201, everyone=True,
        statuses=(409,),
    ),
    _action("pause", pause_schedule, "Stop firing a schedule", PauseScheduleBody),
    _action("resume", resume_schedule, "Resume a schedule with its next tick"),
    _action("run", run_schedule, "Enqueue a job of a schedule now", response=JobView),
    _action("skip", skip_schedule, "Skip the next ticks of a schedule", SkipBody),
    _action("change", change_schedule, "Change a schedule at run time", ChangeScheduleBody),
    _action("reset", reset_schedule, "Discard the run-time changes of a schedule"),
    _action(
        "backfill", backfill_schedule, "Enqueue the jobs of past ticks", BackfillBody, Backfilled
    ),
    _action("delete", delete_schedule, "Remove a schedule; its jobs stay", response=None),
)  # fmt: skip
