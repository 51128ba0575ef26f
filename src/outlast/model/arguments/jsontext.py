"""Values as JSON text, by pydantic; imported when the first value is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import SchemaSerializer

from ..blob import escape_reference
from ..errors import InvalidResult, Problem
from ..safe_text import error_summary, type_name
from .storable import MAX_PAYLOAD, too_big, unstorable


class Writer:
    """Writes values of one type."""

    def __init__(self, serializer: SchemaSerializer) -> None:
        # Field names, not aliases: those for reading and for writing may differ.
        self._serialize: Callable[..., bytes] = partial(
            serializer.to_json, by_alias=False, round_trip=True, warnings=False
        )

    def write(self, value: object) -> bytes:
        """The text; raises whatever pydantic or a user's serialiser raises."""
        return self._serialize(value)

    def write_checked(
        self, value: object, path: str, limit: int = MAX_PAYLOAD
    ) -> tuple[bytes, list[Problem]]:
        """The text, or why a value that looked storable cannot be written after all."""
        unknown: list[object] = []
        try:
            text = self._serialize(value, fallback=unknown.append)
            if unknown:
                return b"", _name_unknown(value, unknown, path)
            again = suspicious(text)
            return text, unstorable(json.loads(text), limit=limit) if again else []
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            return b"", [Problem(path, f"cannot be written as JSON: {error_summary(error)}")]


def _name_unknown(value: object, unknown: list[object], path: str) -> list[Problem]:
    """Where the objects stand that JSON has no form for."""
    if found := unstorable(value, {id(one) for one in unknown}):
        return found
    return [Problem(path, f"holds {type_name(unknown[0])}, which cannot be JSON")]


def suspicious(text: bytes) -> bool:
    """A user's serialiser can write what its value did not show.

    In plain text all of these are harmless, so they only mean: look again.
    """
    return b"\\u0000" in text or b"NaN" in text or b"Infinity" in text


def oversized(text: bytes, what: str, limit: int) -> list[Problem]:
    if len(text) <= limit:
        return []
    return [Problem("", f"{what} {len(text):,} bytes, {too_big(limit)}")]


def write_result(value: object, annotation: Any, limit: int = MAX_PAYLOAD) -> str:
    """A handler's result. It need not come back equal, so a tuple may become a list."""
    text, problems = b"", unstorable(value, limit=limit)
    if not problems:
        text, problems = _writer(annotation).write_checked(value, "", limit)
    problems = problems or oversized(text, "the result takes", limit)
    if problems:
        raise InvalidResult(problems)
    return escape_reference(text.decode())


def type_adapter(annotation: Any) -> TypeAdapter[Any]:
    """What pydantic makes of a type; plain JSON, if it is unhashable or unknown to pydantic."""
    try:
        return _typed_adapter(annotation)
    except Exception:
        return _typed_adapter(Any)


def _writer(annotation: Any) -> Writer:
    try:
        return _typed_writer(annotation)
    except Exception:
        return _typed_writer(Any)


@lru_cache(maxsize=1024)
def _typed_adapter(annotation: Any) -> TypeAdapter[Any]:
    return TypeAdapter(annotation)


@lru_cache(maxsize=1024)
def _typed_writer(annotation: Any) -> Writer:
    return Writer(_typed_adapter(annotation).serializer)
