"""A job's data for people: values as text, events as lines."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime

from markupsafe import Markup, escape

from ...model.job import lenient_json
from ...model.timestamps import to_datetime
from ...ops.events import StoredEvent

MAX_PREVIEW_LENGTH = 2_000  # characters of a value, by default
MAX_FULL_LENGTH = 1_000_000  # characters of a value that is shown in full
MAX_LINE_LENGTH = 500


@dataclass(frozen=True, slots=True)
class ValueText:
    """A value as text. `left` characters are not shown; `whole`: it was requested in full."""

    text: str | None
    left: int = 0
    whole: bool = False


@dataclass(frozen=True, slots=True)
class EventLine:
    """An event in a list."""

    position: int
    kind: str
    attempt: int | None
    at: datetime
    text: str


def value_text(value: object, whole: bool = False) -> ValueText:
    if value is None or value == "":
        return ValueText(None)
    text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    limit = MAX_FULL_LENGTH if whole else MAX_PREVIEW_LENGTH
    return ValueText(
        text[:limit], max(0, len(text) - limit), whole and len(text) > MAX_PREVIEW_LENGTH
    )


def event_line(event: StoredEvent) -> EventLine:
    at = to_datetime(event.at)
    assert at is not None
    return EventLine(
        event.position,
        event.kind,
        event.attempt,
        at,
        event_text(event.kind, lenient_json(event.data)),
    )


def event_text(kind: str, data: object) -> str:
    """An event's data in one line, worded as in `jobs.js`."""
    if not isinstance(data, dict):
        return "" if data is None else str(data)[:MAX_LINE_LENGTH]
    words = _progress_text(data) if kind == "progress" else _fields_text(data)
    return words[:MAX_LINE_LENGTH]


def _progress_text(data: dict[str, object]) -> str:
    of = "" if data.get("total") is None else f" of {data['total']}"
    note = f" – {data['note']}" if data.get("note") else ""
    return f"{data.get('done', 0)}{of}{note}"


def _fields_text(data: dict[str, object]) -> str:
    """The message first, if there is one; then every field by its name."""
    first = [str(data["message"])] if data.get("message") else []
    rest = [
        f"{name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in data.items()
        if name != "message" and value not in (None, "")
    ]
    return " · ".join([*first, *rest])


def inline_code(text: str) -> Markup:
    """Text as HTML, with the parts between `backticks` as code."""
    parts = re.split(r"`([^`]+)`", text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if index % 2 else escape(part)
        for index, part in enumerate(parts)
    )
