"""Frames of event streams, as server-sent events or as JSON lines. The objects are the same."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cached_property

from ...model.job import lenient_json
from ...model.stream import StreamChunk
from ...model.timestamps import to_datetime
from ...ops.events import JobStatus, StoredEvent
from ...ops.live_events import LiveEvent
from ...protocol import NDJSON, SSE
from ..streaming import sse_event, sse_retry

_RESERVED_NAMES = {"error", "open", "message"}
_EVENT_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")


class EventFrame:
    """A frame, encoded when the first subscriber needs it and cached for all.

    A frame without an `id` is transient: it is not repeated when the stream is resumed.
    """

    def __init__(self, kind: str, content: Mapping[str, object], id: str | None = None) -> None:
        self.kind = kind
        self.id = id
        self._content = content

    @cached_property
    def text(self) -> str:
        """One line: JSON in ASCII has no line breaks."""
        head = {"kind": self.kind} if self.id is None else {"id": self.id, "kind": self.kind}
        return json.dumps({**head, **self._content})

    @cached_property
    def sse(self) -> bytes:
        # Kinds that are EventSource's own names, or not valid names, are sent as plain messages.
        named = _EVENT_NAME.fullmatch(self.kind) and self.kind not in _RESERVED_NAMES
        return sse_event(self.text, event=self.kind if named else None, id=self.id)

    @cached_property
    def ndjson(self) -> bytes:
        return f"{self.text}\n".encode()

    def encoded(self, media: str) -> bytes:
        return self.sse if media == SSE else self.ndjson


def event_frame(stored: StoredEvent) -> EventFrame:
    content = {
        "job": stored.job,
        "attempt": stored.attempt,
        "fence": stored.fence,
        "at": _iso_time(stored.at),
        "queue": stored.queue,
        "task": stored.task,
        "tenant": stored.tenant,
        "flow": stored.flow,
        "data": lenient_json(stored.data),
    }
    return EventFrame(stored.kind, content, str(stored.position))


def live_frame(event: LiveEvent) -> EventFrame:
    content = {
        "job": event.job,
        "attempt": event.attempt,
        "fence": event.fence,
        "at": None if event.at is None else event.at.isoformat(),
        "queue": event.queue,
        "task": event.task,
        "tenant": event.tenant,
        "flow": event.flow,
        "data": event.data,
    }
    return EventFrame(event.kind, content, event.id)


def chunk_frame(job: str, chunk: StreamChunk) -> EventFrame:
    content = {
        "job": job,
        "attempt": chunk.attempt,
        "fence": chunk.fence,
        "at": None if chunk.at is None else chunk.at.isoformat(),
        "data": chunk.data,
    }
    return EventFrame(chunk.kind, content, chunk.id)


def stream_end_frame(job: str, status: JobStatus | None, cursor: str) -> EventFrame:
    """The last frame of a job's output, unless it is redriven."""
    content = {"job": job, "state": "removed"} if status is None else _end_fields(status)
    return EventFrame("end", content, f"{cursor}-end")


def state_frame(status: JobStatus) -> EventFrame:
    """The current state of a job."""
    return EventFrame("state", _status_fields(status))


def end_frame(job: str, status: JobStatus | None, position: int) -> EventFrame:
    """The last frame of a job, unless it is redriven."""
    content = {"job": job, "state": "removed"} if status is None else _end_fields(status)
    return EventFrame("end", content, f"{position}-end")


def cut_frame(reason: str, position: int | str) -> EventFrame:
    """The end of a connection: everything up to here was sent, and the stream can be resumed."""
    return EventFrame("cut", {"reason": reason, "after": str(position)})


def reset_frame(requested: int, position: int) -> EventFrame:
    """The notice that the sequence was set back below the reader's position, and continues after
    this one. Later events that the reader received are not in the sequence."""
    return EventFrame("reset", {"asked": str(requested)}, str(position))


def retry_bytes(retry: float, media: str) -> bytes:
    """The first frame: the wait before a reconnect."""
    return sse_retry(retry) if media == SSE else b""


def keep_alive_bytes(position: int | None, media: str) -> bytes:
    """A frame that keeps an idle stream open and has its position, so that a resumed stream skips
    filtered events. Browsers dispatch no event for it."""
    if media == NDJSON:
        content = {} if position is None else {"id": str(position)}
        return (json.dumps({**content, "kind": "keep-alive"}) + "\n").encode()
    return b": keep-alive\n\n" if position is None else f"id: {position}\n\n".encode()


def _status_fields(status: JobStatus) -> dict[str, object]:
    return {
        "job": status.id,
        "state": status.state,
        "attempt": status.attempt,
        "fence": status.fence,
        "worker": status.worker,
    }


def _end_fields(status: JobStatus) -> dict[str, object]:
    error = lenient_json(status.error)
    short = {name: error.get(name) for name in ("type", "message")} if _is_object(error) else None
    failed = short if status.state != "succeeded" else None
    return {**_status_fields(status), "at": _iso_time(status.finished_at), "error": failed}


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


def _iso_time(seconds: float | None) -> str | None:
    at = to_datetime(seconds)
    return None if at is None else at.isoformat()
