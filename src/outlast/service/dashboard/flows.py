"""The pages of flows: the list, and one flow as a graph and a table."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from uuid import UUID

from starlette.responses import Response

from ...model.api_token import Scope
from ...model.errors import FlowClosed, TooEarly
from ...model.lifecycle import State
from ...ops import flow_report, search
from ...ops.access import Access
from ...ops.flow_report import FlowState, JobOutline
from ...ops.operation import Op
from ...ops.search import flow_in_reach
from ..api.flows import cancel_flow, redrive_flow
from ..api.params import flow_id_of
from ..api.request_models import ReasonBody, RequestModel
from ..request import RequestContext
from .confirm import (
    Confirmation,
    confirmation_page,
    redirect_done,
    redirect_refused,
    submitted_form,
)
from .flow_layout import MAX_DRAWN_JOBS, layout_graph
from .pages import action_route, page_route, render_page

PAGE_SIZE = 50
MAX_COUNTED_JOBS = 20_000  # jobs of one flow that are counted by task


class FlowsQuery(RequestModel):
    cursor: UUID | None = None


@dataclass(frozen=True, slots=True)
class FlowPicture:
    state: FlowState
    jobs: list[JobOutline]
    edges: list[tuple[str, str]]


async def flows_page(call: RequestContext) -> Response:
    cursor = call.query.cursor
    found, further = await call.ol.store.arun(
        search.search_flows, call.reach, cursor and str(cursor), PAGE_SIZE
    )
    return await render_page(
        call, "flows.html", flows=found, next=further, later=cursor is not None
    )


async def flow_page(call: RequestContext) -> Response:
    picture = await call.ol.store.arun(_read_picture, flow_id_of(call), call.reach)
    small = picture.state.total <= MAX_DRAWN_JOBS
    before: dict[str, list[str]] = {}
    for one, other in picture.edges if small else ():
        before.setdefault(other, []).append(one)
    return await render_page(
        call, "flow.html", flow=picture.state, jobs=picture.jobs if small else [],
        graph=layout_graph(picture.jobs, picture.edges) if small else None, before=before,
        tasks=[] if small else by_task(picture.jobs), states=list(State),
        numbers={job.id: number for number, job in enumerate(picture.jobs, 1)},
        most_drawn=MAX_DRAWN_JOBS,
    )  # fmt: skip


def by_task(jobs: list[JobOutline]) -> list[tuple[str, dict[str, int]]]:
    """The number of jobs of each task in each state."""
    counted = Counter((job.task, str(job.state)) for job in jobs)
    tasks = dict.fromkeys(job.task for job in jobs)
    return [(task, {state: counted[task, state] for state in State}) for task in tasks]


def _read_picture(id: str, reach: Access) -> Op[FlowPicture]:
    yield from flow_in_reach(id, reach)
    state = yield from flow_report.flow(id)
    jobs = yield from flow_report.outline(id, MAX_COUNTED_JOBS)
    small = state.total <= MAX_DRAWN_JOBS
    edges = (yield from flow_report.flow_edges(id)) if small else []
    return FlowPicture(state, jobs, edges)


async def ask_cancel_flow(call: RequestContext) -> Response:
    id = flow_id_of(call)
    await call.ol.store.arun(flow_in_reach, id, call.reach)
    confirmation = Confirmation(
        title="Cancel this flow?",
        consequence="Queued jobs are cancelled, running jobs are asked to stop, and no further job"
        " of the flow will start.",
        button="Cancel it",
        path=f"/flows/{id}/cancel",
        back=f"/flows/{id}",
        danger=True,
    )
    return await confirmation_page(call, confirmation)


async def do_cancel_flow(call: RequestContext) -> Response:
    body = await submitted_form(call, ReasonBody)
    flow = await cancel_flow(replace(call, body=body))
    message = (
        f"The flow is {flow['state']}: {flow['ended']:,} of {flow['total']:,} jobs have ended."
    )
    return await redirect_done(call, message, "/flows", flow["id"])


async def ask_redrive_flow(call: RequestContext) -> Response:
    id = flow_id_of(call)
    await call.ol.store.arun(flow_in_reach, id, call.reach)
    confirmation = Confirmation(
        title="Redrive this flow?",
        consequence="Its dead and cancelled jobs start over; succeeded jobs stay as they are.",
        button="Redrive it",
        path=f"/flows/{id}/redrive",
        back=f"/flows/{id}",
    )
    return await confirmation_page(call, confirmation)


async def do_redrive_flow(call: RequestContext) -> Response:
    id = flow_id_of(call)
    await submitted_form(call, RequestModel)
    try:
        result = await redrive_flow(call)
    except (TooEarly, FlowClosed) as error:
        return await redirect_refused(call, f"No change: {error}", "/flows", id)
    jobs = "1 job" if result["done"] == 1 else f"{result['done']:,} jobs"
    return await redirect_done(call, f"Redrove {jobs}.", "/flows", id)


ROUTES = (
    page_route("/flows", flows_page, "Flows", query=FlowsQuery),
    page_route("/flows/{id}", flow_page, "One flow, as a graph"),
    page_route("/flows/{id}/cancel", ask_cancel_flow, "Cancel a flow?", scope=Scope.ADMIN),
    page_route("/flows/{id}/redrive", ask_redrive_flow, "Redrive a flow?", scope=Scope.ADMIN),
    action_route("/flows/{id}/cancel", do_cancel_flow, "Cancel a flow"),
    action_route("/flows/{id}/redrive", do_redrive_flow, "Redrive a flow"),
)
