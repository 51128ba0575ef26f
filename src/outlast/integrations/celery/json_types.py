"""Celery's JSON: dates, times, UUIDs, decimals and bytes are marked with their types.

    {"__type__": "datetime", "__value__": "2026-01-31T12:00:00+00:00"}

Tuples become lists, as always in JSON.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from ...model.errors import InvalidArguments, Problem

TYPE, VALUE = "__type__", "__value__"

_WRITERS: tuple[tuple[type, str, Callable[[Any], Any]], ...] = (
    (datetime, "datetime", datetime.isoformat),  # before its base class date
    (date, "date", date.isoformat),
    (time, "time", time.isoformat),
    (Decimal, "decimal", str),
    (UUID, "uuid", lambda value: {"hex": value.hex}),
)
_READERS: dict[str, Callable[[Any], Any]] = {
    "datetime": datetime.fromisoformat,
    "date": lambda text: datetime.fromisoformat(text).date(),
    "time": time.fromisoformat,
    "decimal": Decimal,
    "uuid": lambda parts: UUID(hex=parts["hex"]),
    "bytes": lambda text: text.encode(),
    "base64": base64.b64decode,
}


def to_plain(value: object, task: str) -> Any:
    """A value as plain JSON; other values are refused."""
    try:
        return json.loads(json.dumps(value, default=_marked))
    except (TypeError, ValueError, RecursionError) as error:
        message = f"{error}: arguments and results are JSON; pass an id instead of an object"
        raise InvalidArguments(task, [Problem("", message)]) from error


def to_python(value: object) -> Any:
    """The original values of plain JSON. Raises ValueError for an unknown type."""
    if isinstance(value, list):
        return [to_python(one) for one in value]
    if not isinstance(value, dict):
        return value
    if value.keys() != {TYPE, VALUE}:
        return {name: to_python(one) for name, one in value.items()}
    reader = _READERS.get(value[TYPE]) if isinstance(value[TYPE], str) else None
    if reader is None:
        raise ValueError(f"values of the type {value[TYPE]!r:.80} cannot be read")
    return reader(value[VALUE])


def _marked(value: object) -> Any:
    for kind, mark, write in _WRITERS:
        if isinstance(value, kind):
            return {TYPE: mark, VALUE: write(value)}
    if isinstance(value, bytes):
        try:
            return {TYPE: "bytes", VALUE: value.decode()}
        except UnicodeDecodeError:
            return {TYPE: "base64", VALUE: base64.b64encode(value).decode()}
    raise TypeError(f"{type(value).__name__} objects are not JSON")
