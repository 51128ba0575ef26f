"""The pages of flows: which there are, and one of them as a picture and as a table."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from uuid import UUID

from starlette.responses import Response

from ...model.errors import FlowClosed, TooEarly
from ...model.lifecycle import State
from ...model.tokens import Scope
from ...ops import browse, flow_report
from ...ops.flow_report import FlowState, Outline
from ...ops.reach import Reach
from ...ops.search import flow_in_reach
from ...ops.statement import Op
from ..api.asked import Incoming, ReasonBody
from ..api.flows import cancel_flow, redrive_flow
from ..api.naming import flow_in
from ..calls import Call
from .acting import Question, ask, done, form, refused
from .flow_graph import MOST_DRAWN, drawn
from .pages import acts, page, seen

PAGE = 50
MOST_COUNTED = 20_000  # jobs of one flow that are told apart by task


class FlowsQuery(Incoming):
    cursor: UUID | None = None


@dataclass(frozen=True, slots=True)
class Picture:
    state: FlowState
    jobs: list[Outline]
    edges: list[tuple[str, str]]


async def flows_page(call: Call) -> Response:
    cursor = call.query.cursor
    found, further = await call.ol.store.arun(
        browse.flows, call.reach, cursor and str(cursor), PAGE
    )
    return await page(call, "flows.html", flows=found, next=further, later=cursor is not None)


async def flow_page(call: Call) -> Response:
    picture = await call.ol.store.arun(_picture, flow_in(call), call.reach)
    small = picture.state.total <= MOST_DRAWN
    before: dict[str, list[str]] = {}
    for one, other in picture.edges if small else ():
        before.setdefault(other, []).append(one)
    return await page(
        call, "flow.html", flow=picture.state, jobs=picture.jobs if small else [],
        graph=drawn(picture.jobs, picture.edges) if small else None, before=before,
        tasks=[] if small else by_task(picture.jobs), states=list(State),
        numbers={job.id: number for number, job in enumerate(picture.jobs, 1)},
        most_drawn=MOST_DRAWN,
    )  # fmt: skip


def by_task(jobs: list[Outline]) -> list[tuple[str, dict[str, int]]]:
    """How many jobs of each task stand in each state."""
    counted = Counter((job.task, str(job.state)) for job in jobs)
    tasks = dict.fromkeys(job.task for job in jobs)
    return [(task, {state: counted[task, state] for state in State}) for task in tasks]


def _picture(id: str, reach: Reach) -> Op[Picture]:
    yield from flow_in_reach(id, reach)
    state = yield from flow_report.flow(id)
    jobs = yield from flow_report.outline(id, MOST_COUNTED)
    small = state.total <= MOST_DRAWN
    edges = (yield from flow_report.flow_edges(id)) if small else []
    return Picture(state, jobs, edges)


async def ask_cancel_flow(call: Call) -> Response:
    id = flow_in(call)
    await call.ol.store.arun(flow_in_reach, id, call.reach)
    question = Question(
        title="Cancel all of this flow?",
        consequence="What has not started is cancelled, what runs is asked to stop, and nothing"
        " that comes later will start.",
        button="Cancel it",
        path=f"/flows/{id}/cancel",
        back=f"/flows/{id}",
        danger=True,
    )
    return await ask(call, question)


async def do_cancel_flow(call: Call) -> Response:
    asked = await form(call, ReasonBody)
    flow = await cancel_flow(replace(call, body=asked))
    said = f"The flow is {flow['state']}: {flow['ended']:,} of {flow['total']:,} jobs have ended."
    return await done(call, said, "/flows", flow["id"])


async def ask_redrive_flow(call: Call) -> Response:
    id = flow_in(call)
    await call.ol.store.arun(flow_in_reach, id, call.reach)
    question = Question(
        title="Give this flow a new life?",
        consequence="All of it that is dead or cancelled starts over; what succeeded stays as it"
        " is.",
        button="Redrive it",
        path=f"/flows/{id}/redrive",
        back=f"/flows/{id}",
    )
    return await ask(call, question)


async def do_redrive_flow(call: Call) -> Response:
    id = flow_in(call)
    await form(call, Incoming)
    try:
        told = await redrive_flow(call)
    except (TooEarly, FlowClosed) as error:
        return await refused(call, f"Nothing was done: {error}", "/flows", id)
    jobs = "1 job has" if told["done"] == 1 else f"{told['done']:,} jobs have"
    return await done(call, f"{jobs} a new life.", "/flows", id)


ROUTES = (
    seen("/flows", flows_page, "Flows", query=FlowsQuery),
    seen("/flows/{id}", flow_page, "One flow, as a picture"),
    seen("/flows/{id}/cancel", ask_cancel_flow, "Cancel a flow?", scope=Scope.ADMIN),
    seen("/flows/{id}/redrive", ask_redrive_flow, "Redrive a flow?", scope=Scope.ADMIN),
    acts("/flows/{id}/cancel", do_cancel_flow, "Cancel a flow"),
    acts("/flows/{id}/redrive", do_redrive_flow, "Redrive a flow"),
)
