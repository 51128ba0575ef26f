"""The routes of events: of one job, of a flow, or of all jobs that a caller may see."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from ...client.verb_arguments import job_id
from ...model.api_token import Scope
from ...model.stream import CURSOR_PATTERN as STREAM_CURSOR
from ...ops.event_filter import DERIVED_KINDS, EventFilter
from ...ops.live_events import CURSOR_PATTERN, LiveCursor
from ...protocol import NDJSON, SSE
from ..api import PREFIX
from ..api.params import flow_id_of
from ..request import RequestContext
from ..route import Route
from .live_stream import LiveEventStream
from .opening import check_position, media_for, open_flow_stream, open_job_stream, open_output
from .stream import EventStream, admit

POSITION_PATTERN = r"^[0-9]{1,18}(-end)?$"
NAMES_FIELD = Field("", max_length=2000, description="one, or several separated by commas")
STAY_FIELD = Field(
    None, ge=0, le=86400, description="maximum seconds of the stream; default: the server's setting"
)
AFTER_LIVE = Field(
    None,
    pattern=f"^{CURSOR_PATTERN}$",
    description="begin after the event with this id (0: at the first)",
)


class FlowEventsQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    after: str | None = AFTER_LIVE
    kind: str = NAMES_FIELD
    stay: float | None = STAY_FIELD


class JobEventsQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    after: str | None = Field(
        None,
        pattern=POSITION_PATTERN,
        description="start after the event with this id (0: at the first)",
    )
    kind: str = NAMES_FIELD
    stay: float | None = STAY_FIELD


class JobStreamQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    after: str | None = Field(
        None,
        pattern=f"^{STREAM_CURSOR}$",
        description="start after the chunk with this id; default: at the first",
    )
    stay: float | None = STAY_FIELD


class EventsQuery(JobEventsQuery):
    after: str | None = AFTER_LIVE
    queue: str = NAMES_FIELD
    task: str = NAMES_FIELD
    state: str = Field("", max_length=200, description="the job's new state in the event")


async def job_events(call: RequestContext) -> Response | None:
    """The events of a job from the first, or from the caller's position, to its end; 204 after the
    end, so that browsers do not reconnect."""
    job = job_id(call.request.path_params["id"])
    return await open_job_stream(call, job, _after(call), _names(call.query.kind), _media(call))


async def job_stream(call: RequestContext) -> Response | None:
    """The output of a job from its beginning, or from the caller's position, to its end."""
    return await open_output(
        call, job_id(call.request.path_params["id"]), _after(call), _media(call)
    )


async def all_events(call: RequestContext) -> Response:
    """The events of all jobs from now on, or from the caller's position."""
    admit(call)
    params, after = call.query, check_position(_after(call))
    event_filter = EventFilter(
        kinds=_names(params.kind),
        in_queues=_names(params.queue),
        tasks=_names(params.task),
        states=_names(params.state),
        tenant=call.who.tenant,
        queues=call.who.queues,
    )
    if event_filter.kinds & DERIVED_KINDS:
        return LiveEventStream(call, event_filter, _media(call), after)
    position = None if after is None else LiveCursor.parse(after).position
    return EventStream(call, event_filter, _media(call), position)


async def flow_events(call: RequestContext) -> Response | None:
    """The events of a flow's jobs, like those of a job."""
    flow = flow_id_of(call)
    return await open_flow_stream(call, flow, _after(call), _names(call.query.kind), _media(call))


def _after(call: RequestContext) -> str | None:
    """The position to continue after: from the header of a reconnecting browser, or from the
    query."""
    return call.request.headers.get("last-event-id") or call.query.after


def _names(text: str) -> frozenset[str]:
    return frozenset(name.strip() for name in text.split(",") if name.strip())


def _media(call: RequestContext) -> str:
    return media_for(call.request.headers.get("accept", ""))


RESUME_HEADERS = {"Last-Event-ID": "the id of the last received event: continue after it"}

ROUTES = (
    Route(
        "GET", f"{PREFIX}/jobs/{{id}}/events", Scope.READ, job_events,
        "The events of a job as they occur, until it has ended",
        query=JobEventsQuery, media=(SSE, NDJSON), statuses=(204, 404), headers=RESUME_HEADERS,
    ),
    Route(
        "GET", f"{PREFIX}/jobs/{{id}}/stream", Scope.READ, job_stream,
        "The output that a job streams, until it has ended",
        query=JobStreamQuery, media=(SSE, NDJSON), statuses=(204, 404), headers=RESUME_HEADERS,
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
