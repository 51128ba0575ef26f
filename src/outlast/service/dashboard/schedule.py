"""The schedule page: jobs that are due next, first attempts and retries alike."""

from __future__ import annotations

import time
from uuid import UUID

from pydantic import Field
from starlette.responses import Response

from ...model.job import Job
from ...ops.search import DueCursor, due
from ..api.request_models import RequestModel
from ..request import RequestContext
from .filters import FilterText, known_names
from .links import Links
from .pages import page_route, render_page

PAGE_SIZE = 50
SEARCH_BUDGET_S = 0.05  # then the page links to the rest
MAX_TIMESTAMP = 253_402_300_800.0  # the end of the year 9999


class SchedulePageQuery(RequestModel):
    queue: FilterText = ""
    cursor: str = Field("", max_length=100)  # time and id of the previous page's last job

    @property
    def after(self) -> DueCursor:
        """The position of the cursor; an invalid cursor is the beginning."""
        at, _, id = self.cursor.partition("_")
        try:
            moment, known = float(at), str(UUID(id))
        except ValueError:
            return DueCursor()
        return DueCursor(moment, known) if 0 <= moment < MAX_TIMESTAMP else DueCursor()


async def schedule_page(call: RequestContext) -> Response:
    params: SchedulePageQuery = call.query
    found, further = await _due_page(call, params)
    query = {"queue": params.queue or None}
    go_on = further and Links.of(call.request)(
        "/schedule", cursor=f"{further.run_at!r}_{further.id}", **query
    )
    names = await known_names(call)
    return await render_page(
        call, "schedule.html", jobs=found, next=go_on, asked=params, names=names
    )


async def _due_page(
    call: RequestContext, params: SchedulePageQuery
) -> tuple[list[Job], DueCursor | None]:
    """A page of the due jobs that are found in time, and the next position."""
    found: list[Job] = []
    position: DueCursor | None = params.after
    deadline = time.monotonic() + SEARCH_BUDGET_S
    while position is not None and len(found) < PAGE_SIZE and time.monotonic() < deadline:
        left = PAGE_SIZE - len(found)
        some, position = await call.ol.store.arun(
            due, call.reach, position, left, params.queue or None
        )
        found += some
    return found, position


ROUTES = (page_route("/schedule", schedule_page, "Jobs due next", query=SchedulePageQuery),)
