"""The schedule: what is due next, first runs and new tries alike."""

from __future__ import annotations

import time
from uuid import UUID

from pydantic import Field
from starlette.responses import Response

from ...model.job import Job
from ...ops.browse import Due, due
from ..api.asked import Incoming
from ..calls import Call
from .links import Links
from .pages import page, seen
from .wanted import Said, names_known

PAGE = 50
SEARCH_FOR = 0.05  # seconds; then a page says where to go on
LAST = 253_402_300_800.0  # no moment is later than the year 9999


class ScheduleQuery(Incoming):
    queue: Said = ""
    cursor: str = Field("", max_length=100)  # a moment and an id, as the page before has it

    @property
    def after(self) -> Due:
        """What is no place is the beginning."""
        at, _, id = self.cursor.partition("_")
        try:
            moment, known = float(at), str(UUID(id))
        except ValueError:
            return Due()
        return Due(moment, known) if 0 <= moment < LAST else Due()


async def schedule_page(call: Call) -> Response:
    asked: ScheduleQuery = call.query
    found, further = await _next(call, asked)
    query = {"queue": asked.queue or None}
    go_on = further and Links.of(call.request)(
        "/schedule", cursor=f"{further.run_at!r}_{further.id}", **query
    )
    names = await names_known(call)
    return await page(call, "schedule.html", jobs=found, next=go_on, asked=asked, names=names)


async def _next(call: Call, asked: ScheduleQuery) -> tuple[list[Job], Due | None]:
    """A page of what is due, as much of it as is found in a moment; and where to go on."""
    found: list[Job] = []
    place: Due | None = asked.after
    until = time.monotonic() + SEARCH_FOR
    while place is not None and len(found) < PAGE and time.monotonic() < until:
        left = PAGE - len(found)
        some, place = await call.ol.store.arun(due, call.reach, place, left, asked.queue or None)
        found += some
    return found, place


ROUTES = (seen("/schedule", schedule_page, "What is due next", query=ScheduleQuery),)
