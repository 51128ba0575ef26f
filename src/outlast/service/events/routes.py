"""The routes of events: of one job, or of all that a caller may see."""

from __future__ import annotations

import re

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from ...client.base import job_id
from ...model.api_token import Scope
from ...model.errors import JobNotFound
from ...ops import flow_report
from ...ops.event_filter import DERIVED_KINDS, EventFilter
from ...ops.live_events import CURSOR_PATTERN, LiveCursor
from ...ops.search import flow_in_reach
from ...protocol import NDJSON, SSE
from ..api import PREFIX
from ..api.params import flow_id_of
from ..problems import UnprocessableBody
from ..request import RequestContext
from ..route import Route
from .live_stream import LiveEventStream
from .stream import EventStream, admit

POSITION_PATTERN = r"^[0-9]{1,18}(-end)?$"
NAMES_FIELD = Field("", max_length=2000, description="one, or several separated by commas")


AFTER_LIVE = Field(
    None,
    pattern=f"^{CURSOR_PATTERN}$",
    description="begin after the event with this id (0: at the first)",
)


class FlowEventsQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    after: str | None = AFTER_LIVE
    kind: str = NAMES_FIELD
    stay: float | None = Field(
        None, ge=0, le=86400, description="seconds the stream lasts at the most; else as set here"
    )


class JobEventsQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    after: str | None = Field(
        None,
        pattern=POSITION_PATTERN,
        description="start after the event with this id (0: at the first)",
    )
    kind: str = NAMES_FIELD
    stay: float | None = Field(
        None,
        ge=0,
        le=86400,
        description="maximum seconds of the stream; default: the server's setting",
    )


class EventsQuery(JobEventsQuery):
    after: str | None = AFTER_LIVE
    queue: str = NAMES_FIELD
    task: str = NAMES_FIELD
    state: str = Field("", max_length=200, description="the job's new state, as the event has it")


async def job_events(call: RequestContext) -> Response | None:
    """From the job's first event, or from the caller's position, to its last."""
    job, broadcaster = job_id(call.request.path_params["id"]), admit(call)
    standing = await broadcaster.job_status(job, call.who.tenant)
    if standing is None or not call.who.can_access(standing.queue):
        raise JobNotFound(job=job)
    after, ended = _position(call, "0")
    if ended and standing.final and await broadcaster.is_over(job, after or 0):
        return None  # 204: browsers do not reconnect
    event_filter = EventFilter(
        job=job, kinds=_names(call.query.kind), tenant=call.who.tenant, queues=call.who.queues
    )
    return EventStream(call, event_filter, _media(call), after, standing)


async def all_events(call: RequestContext) -> Response:
    """From now on, or from the caller's position."""
    admit(call)
    params = call.query
    event_filter = EventFilter(
        kinds=_names(params.kind),
        in_queues=_names(params.queue),
        tasks=_names(params.task),
        states=_names(params.state),
        tenant=call.who.tenant,
        queues=call.who.queues,
    )
    if event_filter.kinds & DERIVED_KINDS:
        return LiveEventStream(call, event_filter, _media(call), _live_position(call))
    return EventStream(call, event_filter, _media(call), _position(call, None)[0])


async def flow_events(call: RequestContext) -> Response | None:
    """From the flow's first event, or from where the caller was; to its end."""
    flow, after = flow_id_of(call), _live_position(call) or "0"
    admit(call)
    await call.ol.store.arun(flow_in_reach, flow, call.reach)
    if after.endswith("-end") and (await call.ol.store.arun(flow_report.flow, flow)).final:
        return None  # 204, on which a browser does not come back
    event_filter = EventFilter(
        flow=flow, kinds=_names(call.query.kind), tenant=call.who.tenant, queues=call.who.queues
    )
    return LiveEventStream(call, event_filter, _media(call), after)


def _live_position(call: RequestContext) -> str | None:
    """Where to go on, among stored events and successes."""
    text = call.request.headers.get("last-event-id") or call.query.after
    if text is not None and not re.fullmatch(CURSOR_PATTERN, text):
        raise _no_event_id()
    return text


def _no_event_id() -> UnprocessableBody:
    problem = {"path": "Last-Event-ID", "message": "must be the id of an event"}
    return UnprocessableBody("Last-Event-ID must be the id of an event", problems=[problem])


def _position(call: RequestContext, default: str | None) -> tuple[int | None, bool]:
    """The position to continue after, and whether the job's end was sent: from the header of a
    reconnecting browser, or from the query."""
    position_text = call.request.headers.get("last-event-id") or call.query.after or default
    if position_text is None:
        return None, False
    if re.fullmatch(CURSOR_PATTERN, position_text) is None:
        raise _no_event_id()
    return LiveCursor.parse(position_text).position, position_text.endswith("-end")


def _names(text: str) -> frozenset[str]:
    return frozenset(name.strip() for name in text.split(",") if name.strip())


def _media(call: RequestContext) -> str:
    accepted = call.request.headers.get("accept", "")
    return NDJSON if NDJSON in accepted and SSE not in accepted else SSE


RESUME_HEADERS = {"Last-Event-ID": "the id of the last received event: continue after it"}

ROUTES = (
    Route(
        "GET", f"{PREFIX}/jobs/{{id}}/events", Scope.READ, job_events,
        "The events of a job as they occur, until it has ended",
        query=JobEventsQuery, media=(SSE, NDJSON), statuses=(204, 404), headers=RESUME_HEADERS,
    ),
    Route(
        "GET", f"{PREFIX}/flows/{{id}}/events", Scope.READ, flow_events,
        "The events of a flow's jobs as they occur, until the flow ends",
        query=FlowEventsQuery, media=(SSE, NDJSON), statuses=(204, 404), headers=RESUME_HEADERS,
    ),
    Route(
        "GET", f"{PREFIX}/events", Scope.READ, all_events, "The events of all jobs as they occur",
        query=EventsQuery, media=(SSE, NDJSON), headers=RESUME_HEADERS,
    ),
)  # fmt: skip
