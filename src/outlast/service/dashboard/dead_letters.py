"""The dead-letter page: dead jobs by task and error; each group can be redriven at once."""

from __future__ import annotations

import time

from starlette.responses import Response

from ...ops import report
from ...ops.search import DeadGroup, dead_by_error
from ..job_counts import by_state
from ..request import RequestContext
from .pages import page_route, render_page

COUNT_BUDGET_S = 0.05  # then the count is a lower bound
PAGE_SIZE = 5_000  # dead jobs per read
MAX_GROUPS = 200


async def dead_page(call: RequestContext) -> Response:
    groups, exact = await _groups(call)
    shown = groups[:MAX_GROUPS]
    last = await call.ol.store.arun(report.ended, [one.last for one in shown])
    seen = sum(one.number for one in groups)
    counted = by_state((await call.service.job_counts.snapshot()).of(call.reach))["dead"]
    messages = {id: _message(error) for id, (_, _, error) in last.items()}
    return await render_page(
        call, "dead.html", groups=shown, unshown=len(groups) - len(shown), exact=exact,
        seen=seen, number=seen if exact else max(seen, counted), messages=messages,
    )  # fmt: skip


async def _groups(call: RequestContext) -> tuple[list[DeadGroup], bool]:
    """The groups, largest first, and whether all dead jobs were read, or only the newest."""
    groups: dict[tuple[str, str], DeadGroup] = {}
    cursor, deadline = None, time.monotonic() + COUNT_BUDGET_S
    while True:
        some, cursor = await call.ol.store.arun(dead_by_error, call.reach, cursor, PAGE_SIZE)
        for one in some:
            known = groups.get((one.task, one.error))
            groups[one.task, one.error] = known.merge(one) if known else one
        if cursor is None or time.monotonic() > deadline:
            break
    return sorted(groups.values(), key=lambda one: (-one.number, one.task)), cursor is None


def _message(error: object) -> str:
    return (
        str(error.get("message", ""))[:300] if isinstance(error, dict) else str(error or "")[:300]
    )


ROUTES = (page_route("/dead", dead_page, "Dead jobs by task and error"),)
