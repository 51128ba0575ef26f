"""How events are spelled: as server-sent events, or as lines of JSON. The objects are the same."""

from __future__ import annotations

import json
import re
from functools import cached_property
from typing import Any

from ...model.job import lenient_json
from ...model.moments import moment
from ...ops.events import Standing, Told

SSE, NDJSON = "text/event-stream", "application/x-ndjson"

_WORD = re.compile(r"[a-z][a-z0-9-]{0,39}")


class Frame:
    """Something to be sent, spelled when the first subscriber wants it and then kept for all.

    One without an `id` is of the moment: it is not part of what can be resumed.
    """

    def __init__(self, kind: str, said: dict[str, Any], id: str | None = None) -> None:
        self.kind = kind
        self.id = id
        self._said = said

    @cached_property
    def text(self) -> str:
        """One line: JSON in ASCII has no line breaks."""
        head = {"kind": self.kind} if self.id is None else {"id": self.id, "kind": self.kind}
        return json.dumps({**head, **self._said})

    @cached_property
    def sse(self) -> bytes:
        # The names that EventSource itself uses, and what is no word, arrive as plain messages.
        named = _WORD.fullmatch(self.kind) and self.kind not in {"error", "open", "message"}
        lines = [f"id: {self.id}"] * (self.id is not None) + [f"event: {self.kind}"] * bool(named)
        return "\n".join([*lines, f"data: {self.text}", "", ""]).encode()

    @cached_property
    def ndjson(self) -> bytes:
        return f"{self.text}\n".encode()

    def spelled(self, media: str) -> bytes:
        return self.sse if media == SSE else self.ndjson


def event(told: Told) -> Frame:
    said = {
        "job": told.job,
        "attempt": told.attempt,
        "fence": told.fence,
        "at": _when(told.at),
        "queue": told.queue,
        "task": told.task,
        "tenant": told.tenant,
        "data": lenient_json(told.data),
    }
    return Frame(told.kind, said, str(told.place))


def state(standing: Standing) -> Frame:
    """How a job stands at the moment."""
    return Frame("state", _standing(standing))


def end(job: str, standing: Standing | None, place: int) -> Frame:
    """The last that is told of a job: after it there is nothing, unless it gets a new life."""
    said = {"job": job, "state": "removed"} if standing is None else _ended(standing)
    return Frame("end", said, f"{place}-end")


def cut(reason: str, place: int) -> Frame:
    """The stream ends here, and can be resumed; what was told before is all there is up to here."""
    return Frame("cut", {"reason": reason, "after": str(place)})


def reset(asked: int, place: int) -> Frame:
    """There is nothing yet where the reader was: the sequence has been put back, and goes on after
    this place. What it read beyond is not in it."""
    return Frame("reset", {"asked": str(asked)}, str(place))


def hello(retry: float, media: str) -> bytes:
    """The first that is sent: how long to wait before a reconnect."""
    return f"retry: {round(retry * 1000)}\n\n".encode() if media == SSE else b""


def still_here(place: int | None, media: str) -> bytes:
    """Keeps an idle stream open; and says how far it got, though nothing of it was wanted, so that
    who resumes need not read all that again. No browser makes an event of it."""
    if media == NDJSON:
        said = {} if place is None else {"id": str(place)}
        return (json.dumps({**said, "kind": "keep-alive"}) + "\n").encode()
    return b": keep-alive\n\n" if place is None else f"id: {place}\n\n".encode()


def _standing(standing: Standing) -> dict[str, Any]:
    return {
        "job": standing.id,
        "state": standing.state,
        "attempt": standing.attempt,
        "fence": standing.fence,
        "worker": standing.worker,
    }


def _ended(standing: Standing) -> dict[str, Any]:
    error = lenient_json(standing.error)
    short = {name: error.get(name) for name in ("type", "message")} if _is_object(error) else None
    failed = short if standing.state != "succeeded" else None
    return {**_standing(standing), "at": _when(standing.finished_at), "error": failed}


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _when(seconds: float | None) -> str | None:
    at = moment(seconds)
    return None if at is None else at.isoformat()
