"""The page of one job: its facts, history and actions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from pydantic import Field
from starlette.responses import Response

from ...model.job import Job
from ...model.schedule import origin_of_key
from ...model.signal_link import LinkRecord
from ...model.stream import StreamChunk, StreamCursor, chunks_after
from ...ops import events, report
from ...ops.explain import explain
from ...ops.operation import Op
from ...ops.search import neighbours_in_access
from ...ops.signal_links import links
from ...ops.streams import stream_tail
from ...ops.wait_report import WaitRecord, current_wait, waits
from ..api import PREFIX
from ..api.params import job_id_of
from ..api.request_models import RequestModel
from ..request import RequestContext
from . import answers, job_actions
from .answers import answer_forms
from .event_lines import event_line, value_text
from .pages import page_route, render_page
from .timeline import attempt_views, timeline

OUTPUT_ROWS = 200  # of streamed output
EVENTS_PER_PAGE = 100  # the rest is paged
MAX_NEIGHBOURS = 20
LIVE_KINDS = "progress log attempt cancel redrive forget signal wait state end cut message".split()


class JobPageQuery(RequestModel):
    after: int = Field(0, ge=0, lt=10**18)  # events after this one
    all: Literal["", "args", "result", "error"] = ""  # shown in full


@dataclass(frozen=True, slots=True)
class JobPageData:
    """The page's data, read at one time."""

    job: Job
    attempts: list[report.Attempt]
    steps: list[report.Step]
    waits: list[WaitRecord]
    wait: WaitRecord | None  # the current wait
    links: list[LinkRecord]
    before: list[Any]
    after: list[Any]
    output: list[StreamChunk]


async def job_page(call: RequestContext) -> Response:
    params: JobPageQuery = call.query
    id, store = job_id_of(call), call.ol.store
    data = await store.arun(_read_job, id, call)
    why = await store.arun(explain, id, store.confirm_dead, call.reach)
    page_of_events = await store.arun(
        events.page_of_job, id, params.after, data.job.tenant, EVENTS_PER_PAGE
    )
    # The newest events have no position yet; the stream sends them again once they have.
    recent = (
        []
        if page_of_events.more
        else await store.arun(events.unsequenced_of_job, id, data.job.tenant, EVENTS_PER_PAGE)
    )
    now = await call.service.principals.now()
    known = attempt_views(data.job, data.attempts, now)
    return await render_page(
        call,
        "job.html",
        job=data.job,
        seen=data,
        origin=origin_of_key(data.job.key),
        why=why,
        tries=known,
        timeline=timeline(data.job, known, data.waits, now),
        forms=await answer_forms(call, data.job, data.wait),
        events=[event_line(one) for one in page_of_events.events + recent],
        more=page_of_events.position if page_of_events.more else None,
        reached=page_of_events.position,
        after=params.after,
        live=_live(data.job, page_of_events.more),
        texts=_texts(data.job, params.all),
        stream=f"{PREFIX}/jobs/{id}/events",
        kinds=LIVE_KINDS,
        output=f"{PREFIX}/jobs/{id}/stream",
        output_parts=[_part(chunk) for chunk in data.output],
        output_after=data.output[-1].id if data.output else None,
    )


class OutputPart(NamedTuple):
    """A piece of output on the page, and its CSS class."""

    look: str
    text: str


def _part(chunk: StreamChunk) -> OutputPart:
    match chunk.kind:
        case "text":
            return OutputPart("text", chunk.text)
        case "json":
            return OutputPart("value", json.dumps(chunk.data, ensure_ascii=False))
        case "attempt":
            return OutputPart("mark", f"attempt {chunk.attempt}")
        case "truncated":
            return OutputPart("mark", "the output is cut off here: it has reached its limit")


def _live(job: Job, more: bool) -> bool:
    """Whether the page is live: the last page of a job that has not ended."""
    return not job.final and not more


def _texts(job: Job, whole: str) -> dict[str, object]:
    shown = job.as_json()
    values = {"args": shown["args"], "result": shown["result"],
            "error": (job.error or {}).get("traceback")
            if isinstance(job.error, dict) else job.error}  # fmt: skip
    return {name: value_text(value, whole == name) for name, value in values.items()}


def _read_job(id: str, call: RequestContext) -> Op[JobPageData]:
    job = yield from report.job(id, call.reach)
    attempts, _ = yield from report.history(id, limit=1)
    steps = yield from report.steps(id)
    waited = yield from waits(id)
    wait = yield from current_wait(job)
    made = yield from links(id)
    before, after = yield from neighbours_in_access(id, call.reach, MAX_NEIGHBOURS)
    rows = yield from stream_tail(id, OUTPUT_ROWS)
    output = list(chunks_after(StreamCursor(), rows))
    return JobPageData(job, attempts, steps, waited, wait, made, before, after, output)


ROUTES = (
    page_route("/jobs/{id}", job_page, "One job", query=JobPageQuery),
    *job_actions.ROUTES,
    *answers.ROUTES,
)
