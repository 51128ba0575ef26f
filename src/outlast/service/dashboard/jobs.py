"""The page of jobs: those that match a filter, newest first, with bulk actions."""

from __future__ import annotations

from uuid import UUID

from starlette.responses import RedirectResponse, Response

from ...model.errors import JobNotFound
from ...model.lifecycle import State
from ...ops import report
from ..api.jobs import search_page
from ..request import RequestContext
from .filters import (
    ACTION_STATES,
    JobFilterPage,
    access_of,
    action_states,
    known_names,
    state_counts,
)
from .links import Links
from .pages import page_route, render_page

PAGE_SIZE = 50


async def jobs_page(call: RequestContext) -> Response:
    job_filter: JobFilterPage = call.query
    if (id := await _exact_job_id(call, job_filter)) is not None:
        return RedirectResponse(Links.of(call.request)("/jobs", id), 303)
    cursor = None if job_filter.cursor is None else str(job_filter.cursor)
    found, further = await search_page(
        call, job_filter.job_query, access_of(call, job_filter), cursor, PAGE_SIZE
    )
    return await render_page(
        call,
        "jobs.html",
        wanted=job_filter,
        jobs=found,
        next=further,
        states=list(State),
        counted=await state_counts(call, job_filter),
        names=await known_names(call),
        actions=[one for one in ACTION_STATES if action_states(one, job_filter)],
    )


async def _exact_job_id(call: RequestContext, job_filter: JobFilterPage) -> str | None:
    """The job whose id is in the search field, if any."""
    try:
        id = str(UUID(job_filter.text.strip()))
        return (await call.ol.store.arun(report.job, id, call.reach)).id
    except (ValueError, JobNotFound):
        return None


ROUTES = (page_route("/jobs", jobs_page, "Jobs by filter", query=JobFilterPage),)
