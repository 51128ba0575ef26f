"""What is told of a job, put so that people can read it: values as text, events as lines."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from markupsafe import Markup, escape

from ...model.job import lenient_json
from ...model.moments import moment
from ...ops.events import Told

SHORT = 2_000  # characters of a value that are shown at first
LONG = 1_000_000  # and at the most, when all of it is asked for
ONE_LINE = 500


@dataclass(frozen=True, slots=True)
class Text:
    """A value as text. `left` characters of it are not shown; `whole`: it was asked for in full."""

    text: str | None
    left: int = 0
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """An event in a list."""

    place: int
    kind: str
    attempt: int | None
    at: datetime
    said: str


def shortened(value: Any, whole: bool = False) -> Text:
    if value is None or value == "":
        return Text(None)
    text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    most = LONG if whole else SHORT
    return Text(text[:most], max(0, len(text) - most), whole and len(text) > SHORT)


def told_as(told: Told) -> Line:
    at = moment(told.at)
    assert at is not None
    return Line(told.place, told.kind, told.attempt, at, said(told.kind, lenient_json(told.data)))


def said(kind: str, data: Any) -> str:
    """What an event says, in one line. The script says the same, in the same words."""
    if not isinstance(data, dict):
        return "" if data is None else str(data)[:ONE_LINE]
    words = _progress(data) if kind == "progress" else _named(data)
    return words[:ONE_LINE]


def _progress(data: dict[str, Any]) -> str:
    of = "" if data.get("total") is None else f" of {data['total']}"
    note = f" – {data['note']}" if data.get("note") else ""
    return f"{data.get('done', 0)}{of}{note}"


def _named(data: dict[str, Any]) -> str:
    """The message first, if there is one; then every field by its name."""
    first = [str(data["message"])] if data.get("message") else []
    rest = [
        f"{name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in data.items()
        if name != "message" and value not in (None, "")
    ]
    return " · ".join([*first, *rest])


def spoken(text: str) -> Markup:
    """Prose in which `what is to be typed` stands between backticks."""
    parts = re.split(r"`([^`]+)`", text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if place % 2 else escape(part)
        for place, part in enumerate(parts)
    )
