"""Flows: how one stands, its jobs, cancelling it and giving it a new life as a whole."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from pydantic import Field

from ...connected import ANYWHERE
from ...model.tokens import Scope
from ...ops import flow_report
from ...ops.audit import FIRST
from ...ops.cancel_flow import declare
from ...ops.reach import Reach
from ...ops.retry_flow import redrive_page, reopen
from ...ops.search import flow_in_reach
from ...ops.statement import Op
from ..calls import Call
from ..route import Route
from . import PREFIX
from .asked import Incoming, ReasonBody
from .jobs import line
from .naming import flow_in, limit_of
from .steering import tell
from .views import Done, FlowView, JobPage


class FlowPageQuery(Incoming):
    cursor: UUID | None = Field(None, description="where to go on: `next` of the page before")
    limit: int | None = Field(None, ge=1, le=10_000, description="at most so many; else 50")


async def read_flow(call: Call) -> dict[str, Any]:
    state = await call.ol.store.arun(_flow, flow_in(call), call.reach)
    return state.as_json()


async def list_flow_jobs(call: Call) -> dict[str, Any]:
    asked: FlowPageQuery = call.query
    limit = limit_of(asked.limit, 50, call.service.settings.max_page)
    after = FIRST if asked.cursor is None else str(asked.cursor)
    page = await call.ol.store.arun(_jobs, flow_in(call), call.reach, after, limit)
    cursor = page[-1].id if len(page) == limit else None
    return {"jobs": [line(job) for job in page], "next": cursor}


async def cancel_flow(call: Call) -> dict[str, Any]:
    asked: ReasonBody = call.body
    id = flow_in(call)
    await call.ol.store.arun(flow_in_reach, id, call.reach)
    await call.ol.store.arun(declare, id, call.by, asked.reason)  # said once: by whom is on record
    return (await call.ol.acancel_flow(id)).as_json()


async def redrive_flow(call: Call) -> dict[str, Any]:
    id = flow_in(call)
    await call.ol.store.arun(flow_in_reach, id, call.reach)
    await call.ol.store.arun(reopen, id, call.by)
    done, cursor = 0, None
    while True:
        cursor, revived = await call.ol.store.arun(redrive_page, id, cursor, call.by)
        done += revived
        if cursor is None:
            await tell(call, ANYWHERE)
            return {"done": done, "next": None}


def _flow(id: str, reach: Reach) -> Op[flow_report.FlowState]:
    yield from flow_in_reach(id, reach)
    return (yield from flow_report.flow(id))


def _jobs(id: str, reach: Reach, after: str, limit: int) -> Op[list[Any]]:
    yield from flow_in_reach(id, reach)
    return (yield from flow_report.flow_jobs(id, after, limit))


ROUTES = (
    Route(
        "GET", f"{PREFIX}/flows/{{id}}", Scope.READ, read_flow, "A flow, its jobs counted",
        response=FlowView, statuses=(404,),
    ),
    Route(
        "GET", f"{PREFIX}/flows/{{id}}/jobs", Scope.READ, list_flow_jobs,
        "A page of a flow's jobs, in the order they were enqueued",
        query=FlowPageQuery, response=JobPage, statuses=(404,),
    ),
    Route(
        "POST", f"{PREFIX}/flows/{{id}}/cancel", Scope.ADMIN, cancel_flow,
        "Cancel all of a flow", request=ReasonBody, response=FlowView, statuses=(404,),
    ),
    Route(
        "POST", f"{PREFIX}/flows/{{id}}/redrive", Scope.ADMIN, redrive_flow,
        "Give what is dead or cancelled in a flow a new life",
        response=Done, statuses=(404, 409),
    ),
)  # fmt: skip
