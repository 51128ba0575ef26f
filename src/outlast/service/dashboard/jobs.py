"""The page of jobs: what fits a filter, newest first, and what can be done to all of it."""

from __future__ import annotations

from uuid import UUID

from starlette.responses import RedirectResponse, Response

from ...model.errors import JobNotFound
from ...model.lifecycle import State
from ...ops import report
from ..api.jobs import look
from ..calls import Call
from .links import Links
from .pages import page, seen
from .wanted import ABLE, WantedPage, names_known, reach_of, states_counted, states_for

PAGE = 50


async def jobs_page(call: Call) -> Response:
    wanted: WantedPage = call.query
    if (id := await _meant(call, wanted)) is not None:
        return RedirectResponse(Links.of(call.request)("/jobs", id), 303)
    cursor = None if wanted.cursor is None else str(wanted.cursor)
    found, further = await look(call, wanted.sought, reach_of(call, wanted), cursor, PAGE)
    return await page(
        call,
        "jobs.html",
        wanted=wanted,
        jobs=found,
        next=further,
        states=list(State),
        counted=await states_counted(call, wanted),
        names=await names_known(call),
        actions=[one for one in ABLE if states_for(one, wanted)],
    )


async def _meant(call: Call, wanted: WantedPage) -> str | None:
    """The one job whose id somebody has put into the field."""
    try:
        id = str(UUID(wanted.text.strip()))
        return (await call.ol.store.arun(report.job, id, call.reach)).id
    except (ValueError, JobNotFound):
        return None


ROUTES = (seen("/jobs", jobs_page, "Jobs, by a filter", query=WantedPage),)
