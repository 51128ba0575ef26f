"""The dead letter: what gave up, by task and kind of error; each kind can be redriven as one."""

from __future__ import annotations

import time
from typing import Any

from starlette.responses import Response

from ...ops import report
from ...ops.browse import Deaths, dead_by_error
from ..calls import Call
from ..census import by_state
from .pages import page, seen

COUNT_FOR = 0.05  # seconds; then it is said that there are more
LOOK = 5_000  # dead jobs at a time
MOST_GROUPS = 200


async def dead_page(call: Call) -> Response:
    groups, exact = await _groups(call)
    shown = groups[:MOST_GROUPS]
    last = await call.ol.store.arun(report.ended, [one.last for one in shown])
    seen = sum(one.number for one in groups)
    counted = by_state((await call.service.census.counted()).of(call.reach))["dead"]
    messages = {id: _message(error) for id, (_, _, error) in last.items()}
    return await page(
        call, "dead.html", groups=shown, unshown=len(groups) - len(shown), exact=exact,
        seen=seen, number=seen if exact else max(seen, counted), messages=messages,
    )  # fmt: skip


async def _groups(call: Call) -> tuple[list[Deaths], bool]:
    """The largest first; and whether that is all of them, or of the newest."""
    groups: dict[tuple[str, str], Deaths] = {}
    cursor, until = None, time.monotonic() + COUNT_FOR
    while True:
        some, cursor = await call.ol.store.arun(dead_by_error, call.reach, cursor, LOOK)
        for one in some:
            known = groups.get((one.task, one.error))
            groups[one.task, one.error] = known.and_also(one) if known else one
        if cursor is None or time.monotonic() > until:
            break
    return sorted(groups.values(), key=lambda one: (-one.number, one.task)), cursor is None


def _message(error: Any) -> str:
    return (
        str(error.get("message", ""))[:300] if isinstance(error, dict) else str(error or "")[:300]
    )


ROUTES = (seen("/dead", dead_page, "The dead letter, by task and error"),)
