"""The page of jobs: a filtered, sorted, live list with bulk actions."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any
from uuid import UUID

from markupsafe import Markup
from starlette.responses import RedirectResponse, Response

from ...model.api_token import Scope
from ...model.errors import JobNotFound
from ...model.job import Job
from ...model.lifecycle import State
from ...ops import report
from ...ops.job_lists import ListCursor, add_arguments, ordered_jobs, sortable_columns
from ...protocol import SSE
from ..request import RequestContext
from ..route import Route
from .filters import (
    ACTION_STATES,
    JobFilterPage,
    access_of,
    action_states,
    known_names,
    state_counts,
)
from .links import Links
from .live_lists import JobList
from .live_parts import PartStream
from .pages import page_route, render_page, render_part

PAGE_SIZE = 50
SEARCH_BUDGET_S = 0.05  # then the page is short, and has a link to the rest
SELECTION_ACTIONS = ("redrive", "cancel", "purge")
TIME_COLUMNS: dict[str, str] = {  # beside the time of the enqueue
    State.SCHEDULED: "due",
    State.RUNNING: "started",
    State.SUCCEEDED: "ended",
    State.CANCELLED: "ended",
    State.DEAD: "ended",
}


async def jobs_page(call: RequestContext) -> Response:
    job_filter: JobFilterPage = call.query
    if (id := await _exact_job_id(call, job_filter)) is not None:
        return RedirectResponse(Links.of(call.request)("/jobs", id), 303)
    listed = await read_list(call)
    return await render_page(
        call,
        "jobs.html",
        **_list_facts(call, listed),
        states=list(State),
        counted=await state_counts(call, job_filter),
        names=await known_names(call),
        actions=[one for one in ACTION_STATES if action_states(one, job_filter)],
        selection_actions=SELECTION_ACTIONS,
        shown=await _render_list(call, listed),
    )


async def live_jobs(call: RequestContext) -> Response:
    """The list of jobs as a stream: a new version whenever a row has changed."""
    job_filter: JobFilterPage = call.query
    key = (*job_filter.model_dump().items(), call.reach)
    keep_alive_s = call.service.settings.events_keep_alive

    async def parts() -> AsyncGenerator[str, None]:
        changes = call.service.live_lists.changes(key, lambda: read_list(call), keep_alive_s)
        async with aclosing(changes):
            async for listed in changes:
                yield "" if listed is None else await _render_list(call, listed)

    return PartStream(call, parts)


async def read_list(call: RequestContext) -> JobList:
    """A page of the matching jobs that are found in time, and the next cursor."""
    job_filter: JobFilterPage = call.query
    reach, query = access_of(call, job_filter), job_filter.job_query
    found: list[Job] = []
    cursor, deadline = _cursor_of(job_filter), time.monotonic() + SEARCH_BUDGET_S
    while True:
        page, cursor = await call.ol.store.arun(
            ordered_jobs, query, reach, job_filter.order, cursor, PAGE_SIZE - len(found)
        )
        found += page
        if cursor is None or len(found) >= PAGE_SIZE or time.monotonic() > deadline:
            break
    await call.ol.store.arun(add_arguments, found)
    return JobList(found, None if cursor is None else str(cursor))


def _cursor_of(job_filter: JobFilterPage) -> ListCursor | None:
    """The position of a link; an unreadable one is the beginning."""
    try:
        return ListCursor.parse(job_filter.cursor)
    except ValueError:
        return None


def _list_facts(call: RequestContext, listed: JobList) -> dict[str, Any]:
    job_filter: JobFilterPage = call.query
    state = str(job_filter.state) or None
    return {
        "wanted": job_filter,
        "jobs": listed.jobs,
        "next": listed.next,
        "order": job_filter.order,
        "sortable": sortable_columns(state),
        "time_column": TIME_COLUMNS.get(job_filter.state),
    }


async def _render_list(call: RequestContext, listed: JobList) -> Markup:
    """The list's HTML, rendered once for all users with the same access."""
    prefix = call.request.scope.get("root_path", "")
    may_act = call.who.has_scope(Scope.ADMIN)
    key = (prefix, may_act, call.who.tenant)
    if key not in listed.parts:
        facts = _list_facts(call, listed)
        listed.parts[key] = await render_part(call, "jobs_part.html", **facts)
    return listed.parts[key]


async def _exact_job_id(call: RequestContext, job_filter: JobFilterPage) -> str | None:
    """The job whose id is in the search field, if any."""
    try:
        id = str(UUID(job_filter.text.strip()))
        return (await call.ol.store.arun(report.job, id, call.reach)).id
    except (ValueError, JobNotFound):
        return None


ROUTES = (
    page_route("/jobs", jobs_page, "Jobs by filter", query=JobFilterPage),
    Route("GET", "/live/jobs", Scope.READ, live_jobs, "A list of jobs as a stream",
          query=JobFilterPage, media=(SSE,)),
)  # fmt: skip
