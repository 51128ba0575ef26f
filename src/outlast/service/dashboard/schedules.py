"""Schedules: next runs, last outcomes, a strip of the next 24 hours, and their actions."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from functools import partial

from starlette.responses import Response

from ...model.api_token import Scope
from ...model.schedule import ScheduleSpec
from ...model.schedule_state import Schedule
from ...ops import schedules
from ...ops.schedule_pages import schedule_page
from ..api.request_models import RequestModel
from ..api.schedule_models import PauseScheduleBody, ScheduleBody, SkipBody
from ..api.schedules import pause_schedule, resume_schedule, run_schedule, skip_schedule
from ..request import RequestContext
from .confirm import Confirmation, FormField, confirmation_page, redirect_done, submitted_form
from .filters import FilterText
from .pages import action_route, page_route, render_page

PAGE_SIZE = 50
STRIP_CELLS = 48  # half an hour each: one day
CELL_S = 1800.0


@dataclass(frozen=True, slots=True)
class ScheduleLine:
    schedule: Schedule
    when: str
    cells: list[int]  # half hours of the next day with a tick


class SchedulesQuery(RequestModel):
    text: FilterText = ""
    cursor: FilterText = ""  # the last name of the previous page


async def schedules_page(call: RequestContext) -> Response:
    params: SchedulesQuery = call.query
    asked = partial(schedule_page, after=params.cursor, limit=PAGE_SIZE, text=params.text.strip())
    page = await call.ol.store.arun(asked, call.reach)
    now = await call.service.principals.now()
    lines = await asyncio.to_thread(lambda: [_line(one, now) for one in page.schedules])
    return await render_page(
        call, "schedules.html", lines=lines, asked=params, page=page, cells=STRIP_CELLS
    )


def _line(one: Schedule, now: float) -> ScheduleLine:
    spec = ScheduleSpec(cron=one.cron, every=one.every, tz=one.tz)
    return ScheduleLine(one, str(spec), _cells(spec, one, now))


def _cells(spec: ScheduleSpec, one: Schedule, now: float) -> list[int]:
    """The cells with a tick. At most one tick per cell is computed: there may be thousands."""
    if one.next_at is None:
        return []
    cells: list[int] = []
    after = max(now, one.next_at.timestamp() - 1.0)
    try:
        while (tick := spec.next_tick(after)) is not None:
            cell = int((tick - now) // CELL_S)
            if cell >= STRIP_CELLS:
                break
            cells.append(cell)
            after = now + (cell + 1) * CELL_S - 0.001
    except Exception:  # a row of another release: its error is shown when it is due
        return cells
    return cells


async def ask_pause_schedule(call: RequestContext) -> Response:
    question = await _confirmation(
        call, "pause", "It does not fire until it is resumed. Its running jobs continue."
    )
    return await confirmation_page(call, replace(question, blank=FormField("reason", "Reason")))


async def ask_resume_schedule(call: RequestContext) -> Response:
    consequence = "It starts with its next tick; ticks during the pause are dropped."
    return await confirmation_page(call, await _confirmation(call, "resume", consequence))


async def ask_run_schedule(call: RequestContext) -> Response:
    consequence = "A job is enqueued now, even if another one runs. Its ticks stay as they are."
    return await confirmation_page(call, await _confirmation(call, "run", consequence))


async def ask_skip_schedule(call: RequestContext) -> Response:
    consequence = "Its next tick enqueues no job; the one after it does."
    return await confirmation_page(call, await _confirmation(call, "skip", consequence))


async def do_pause_schedule(call: RequestContext) -> Response:
    body = await submitted_form(call, PauseScheduleBody)
    await pause_schedule(replace(call, body=body))
    return await redirect_done(call, f"The schedule {body.name} is paused.", "/schedules")


async def do_resume_schedule(call: RequestContext) -> Response:
    body = await submitted_form(call, ScheduleBody)
    await resume_schedule(replace(call, body=body))
    return await redirect_done(call, f"The schedule {body.name} is resumed.", "/schedules")


async def do_run_schedule(call: RequestContext) -> Response:
    body = await submitted_form(call, ScheduleBody)
    job = await run_schedule(replace(call, body=body))
    return await redirect_done(
        call, f"A job of the schedule {body.name} is {job['state']}.", "/jobs", job["id"]
    )


async def do_skip_schedule(call: RequestContext) -> Response:
    body = await submitted_form(call, ScheduleBody)
    await skip_schedule(replace(call, body=SkipBody(name=body.name, n=1)))
    return await redirect_done(call, f"{body.name} skips its next tick.", "/schedules")


async def _confirmation(call: RequestContext, verb: str, consequence: str) -> Confirmation:
    name = call.query.name
    await call.ol.store.arun(schedules.schedule, name, call.reach)  # raises without access
    return Confirmation(
        title=f"{verb.capitalize()} the schedule {name}?",
        consequence=consequence,
        button=f"{verb.capitalize()} it",
        path=f"/schedules/{verb}",
        back="/schedules",
        fields={"name": name},
    )


ROUTES = (
    page_route("/schedules", schedules_page, "Schedules", query=SchedulesQuery),
    page_route(
        "/schedules/pause", ask_pause_schedule, "Pause a schedule?",
        query=ScheduleBody, scope=Scope.ADMIN,
    ),
    page_route(
        "/schedules/resume", ask_resume_schedule, "Resume a schedule?",
        query=ScheduleBody, scope=Scope.ADMIN,
    ),
    page_route(
        "/schedules/run", ask_run_schedule, "Run a schedule now?",
        query=ScheduleBody, scope=Scope.ADMIN,
    ),
    page_route(
        "/schedules/skip", ask_skip_schedule, "Skip a schedule's next tick?",
        query=ScheduleBody, scope=Scope.ADMIN,
    ),
    action_route("/schedules/pause", do_pause_schedule, "Pause a schedule"),
    action_route("/schedules/resume", do_resume_schedule, "Resume a schedule"),
    action_route("/schedules/run", do_run_schedule, "Run a schedule now"),
    action_route("/schedules/skip", do_skip_schedule, "Skip a schedule's next tick"),
)  # fmt: skip
