"""Opening of streams: finds the job or flow, and the position of its reader."""

from __future__ import annotations

import re

from ...model.errors import JobNotFound
from ...model.stream import CURSOR_PATTERN as STREAM_CURSOR
from ...model.stream import StreamCursor
from ...ops import flow_report
from ...ops.event_filter import EventFilter
from ...ops.live_events import CURSOR_PATTERN, LiveCursor
from ...ops.search import flow_in_reach
from ...ops.streams import stream_page
from ...protocol import NDJSON, SSE
from ..problems import UnprocessableBody
from ..streaming import StreamCaller
from .job_stream import JobOutputStream
from .live_stream import LiveEventStream
from .stream import EventStream, admit

END = "-end"  # the id of an end


async def open_job_stream(
    call: StreamCaller, job: str, after: str | None, kinds: frozenset[str], media: str
) -> EventStream | None:
    """A job's events from the first one, or from the caller's position, to its end; None if the
    caller has received the end."""
    broadcaster, who = admit(call), call.who
    standing = await broadcaster.job_status(job, who.tenant)
    if standing is None or not who.can_access(standing.queue):
        raise JobNotFound(job=job)
    text = check_position(after) or "0"
    position = LiveCursor.parse(text).position
    if text.endswith(END) and standing.final and await broadcaster.is_over(job, position):
        return None
    wanted = EventFilter(job=job, kinds=kinds, tenant=who.tenant, queues=who.queues)
    return EventStream(call, wanted, media, position, standing)


async def open_flow_stream(
    call: StreamCaller, flow: str, after: str | None, kinds: frozenset[str], media: str
) -> LiveEventStream | None:
    """A flow's events from the first one, or from the caller's position, to its end; None if the
    caller has received the end."""
    broadcaster, who = admit(call), call.who
    text = check_position(after) or "0"
    await broadcaster.read(flow_in_reach, flow, who.reach)
    if text.endswith(END) and (await broadcaster.read(flow_report.flow, flow)).final:
        return None
    wanted = EventFilter(flow=flow, kinds=kinds, tenant=who.tenant, queues=who.queues)
    return LiveEventStream(call, wanted, media, text)


async def open_output(
    call: StreamCaller, job: str, after: str | None, media: str
) -> JobOutputStream | None:
    """A job's output from its beginning, or from the caller's position, to its end; None if the
    caller has received the end."""
    broadcaster, who = admit(call), call.who
    if after is not None and not re.fullmatch(STREAM_CURSOR, after):
        raise _no_position()
    cursor = StreamCursor() if after is None else StreamCursor.parse(after)
    page = await broadcaster.read(stream_page, job, cursor, who.tenant, 2)
    if page.status is None or not who.can_access(page.status.queue):
        raise JobNotFound(job=job)
    rest = [row for row in page.rows if (row.fence, row.n) > (cursor.fence, cursor.n)]
    if (after or "").endswith(END) and page.status.final and not rest:
        return None
    return JobOutputStream(call, job, media, cursor)


def check_position(text: str | None) -> str | None:
    """A position of stored events and successes: the id of an event."""
    if text is not None and not re.fullmatch(CURSOR_PATTERN, text):
        raise _no_position()
    return text


def _no_position() -> UnprocessableBody:
    problem = {"path": "Last-Event-ID", "message": "must be the id of an event"}
    return UnprocessableBody("Last-Event-ID must be the id of an event", problems=[problem])


def media_for(accept: str) -> str:
    """Server-sent events, unless only JSON lines are accepted."""
    return NDJSON if NDJSON in accept and SSE not in accept else SSE
