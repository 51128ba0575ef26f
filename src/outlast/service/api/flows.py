"""Flows: state, jobs, cancel and redrive."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from pydantic import Field

from ...client.verb_arguments import ANY_QUEUE
from ...model.api_token import Scope
from ...ops import flow_report
from ...ops.access import Access
from ...ops.audit import LOWEST_ID
from ...ops.cancel_flow import mark_cancelled
from ...ops.operation import Op
from ...ops.retry_flow import redrive_page, reopen
from ...ops.search import flow_in_reach
from ..request import RequestContext
from ..route import Route
from . import PREFIX
from .job_actions import notify_workers
from .jobs import job_summary
from .params import flow_id_of, limit_of
from .request_models import ReasonBody, RequestModel
from .response_models import Done, FlowView, JobPage


class FlowPageQuery(RequestModel):
    cursor: UUID | None = Field(None, description="`next` of the previous page")
    limit: int | None = Field(None, ge=1, le=10_000, description="maximum jobs; default 50")


async def read_flow(call: RequestContext) -> dict[str, object]:
    state = await call.ol.store.arun(_flow, flow_id_of(call), call.reach)
    return state.as_json()


async def list_flow_jobs(call: RequestContext) -> dict[str, object]:
    params: FlowPageQuery = call.query
    limit = limit_of(params.limit, 50, call.service.settings.max_page)
    after = LOWEST_ID if params.cursor is None else str(params.cursor)
    page = await call.ol.store.arun(_jobs, flow_id_of(call), call.reach, after, limit)
    cursor = page[-1].id if len(page) == limit else None
    return {"jobs": [job_summary(job) for job in page], "next": cursor}


async def cancel_flow(call: RequestContext) -> dict[str, object]:
    params: ReasonBody = call.body
    id = flow_id_of(call)
    await call.ol.store.arun(flow_in_reach, id, call.reach)
    await call.ol.store.arun(mark_cancelled, id, call.by, params.reason)  # records the caller, once
    return (await call.ol.acancel_flow(id)).as_json()


async def redrive_flow(call: RequestContext) -> dict[str, object]:
    id = flow_id_of(call)
    await call.ol.store.arun(flow_in_reach, id, call.reach)
    await call.ol.store.arun(reopen, id, call.by)
    done, cursor = 0, None
    while True:
        cursor, revived = await call.ol.store.arun(redrive_page, id, cursor, call.by)
        done += revived
        if cursor is None:
            await notify_workers(call, ANY_QUEUE)
            return {"done": done, "next": None}


def _flow(id: str, reach: Access) -> Op[flow_report.FlowState]:
    yield from flow_in_reach(id, reach)
    return (yield from flow_report.flow(id))


def _jobs(id: str, reach: Access, after: str, limit: int) -> Op[list[Any]]:
    yield from flow_in_reach(id, reach)
    return (yield from flow_report.flow_jobs(id, after, limit))


ROUTES = (
    Route(
        "GET", f"{PREFIX}/flows/{{id}}", Scope.READ, read_flow, "A flow and its job counts",
        response=FlowView, statuses=(404,),
    ),
    Route(
        "GET", f"{PREFIX}/flows/{{id}}/jobs", Scope.READ, list_flow_jobs,
        "A page of a flow's jobs, in the order of enqueueing",
        query=FlowPageQuery, response=JobPage, statuses=(404,),
    ),
    Route(
        "POST", f"{PREFIX}/flows/{{id}}/cancel", Scope.ADMIN, cancel_flow,
        "Cancel a flow", request=ReasonBody, response=FlowView, statuses=(404,),
    ),
    Route(
        "POST", f"{PREFIX}/flows/{{id}}/redrive", Scope.ADMIN, redrive_flow,
        "Redrive the dead and cancelled jobs of a flow",
        response=Done, statuses=(404, 409),
    ),
)  # fmt: skip
