"""The routes of events: those of one job, and those of all that a caller may see."""

from __future__ import annotations

import re

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from ...connected import job_id
from ...model.errors import JobNotFound
from ...model.tokens import Scope
from ..api import PREFIX
from ..calls import Call
from ..problems import Invalid
from ..route import Route
from .frames import NDJSON, SSE
from .stream import EventStream, room
from .wanted import Wanted

POSITION = r"^[0-9]{1,18}(-end)?$"
NAMES = Field("", max_length=2000, description="one, or several with commas between them")


class JobEventsQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    after: str | None = Field(
        None, pattern=POSITION, description="begin after the event with this id (0: at the first)"
    )
    kind: str = NAMES
    stay: float | None = Field(
        None, ge=0, le=86400, description="seconds the stream lasts at the most; else as set here"
    )


class EventsQuery(JobEventsQuery):
    queue: str = NAMES
    task: str = NAMES
    state: str = Field(
        "", max_length=200, description="what became of the job by it, as the event says"
    )


async def job_events(call: Call) -> Response | None:
    """From the job's first event, or from where the caller was; to its last."""
    job, feeder = job_id(call.request.path_params["id"]), room(call)
    standing = await feeder.standing(job, call.who.tenant)
    if standing is None or not call.who.serves(standing.queue):
        raise JobNotFound(job=job)
    after, ended = _position(call, "0")
    if ended and standing.final and await feeder.is_over(job, after or 0):
        return None  # 204, on which a browser does not come back
    wanted = Wanted(
        job=job, kinds=_names(call.query.kind), tenant=call.who.tenant, queues=call.who.queues
    )
    return EventStream(call, feeder, wanted, _media(call), after, standing)


async def all_events(call: Call) -> Response:
    """From now on, or from where the caller was."""
    feeder, asked = room(call), call.query
    wanted = Wanted(
        kinds=_names(asked.kind),
        in_queues=_names(asked.queue),
        tasks=_names(asked.task),
        states=_names(asked.state),
        tenant=call.who.tenant,
        queues=call.who.queues,
    )
    return EventStream(call, feeder, wanted, _media(call), _position(call, None)[0])


def _position(call: Call, default: str | None) -> tuple[int | None, bool]:
    """Where to go on, and whether the end of the job was told: by the header that a browser sends
    when it comes back, or by the query."""
    said = call.request.headers.get("last-event-id") or call.query.after or default
    if said is None:
        return None, False
    if not re.match(POSITION, said):
        told = {"path": "Last-Event-ID", "message": "must be the id of an event"}
        raise Invalid("Last-Event-ID is no id of an event", problems=[told])
    place, _, ended = said.partition("-")
    return int(place), bool(ended)


def _names(said: str) -> frozenset[str]:
    return frozenset(name.strip() for name in said.split(",") if name.strip())


def _media(call: Call) -> str:
    accepted = call.request.headers.get("accept", "")
    return NDJSON if NDJSON in accepted and SSE not in accepted else SSE


RESUME = {"Last-Event-ID": "the id of the last event that was received: go on after it"}

ROUTES = (
    Route(
        "GET", f"{PREFIX}/jobs/{{id}}/events", Scope.READ, job_events,
        "What is told of a job, as it comes, until it has ended",
        query=JobEventsQuery, media=(SSE, NDJSON), statuses=(204, 404), headers=RESUME,
    ),
    Route(
        "GET", f"{PREFIX}/events", Scope.READ, all_events, "What is told of all jobs, as it comes",
        query=EventsQuery, media=(SSE, NDJSON), headers=RESUME,
    ),
)  # fmt: skip
