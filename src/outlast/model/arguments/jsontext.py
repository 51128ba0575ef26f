"""Write values as JSON text with pydantic; imported with the first write."""

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
        # Field names, not aliases: the aliases for reading and writing may differ.
        self._serialize: Callable[..., bytes] = partial(
            serializer.to_json, by_alias=False, round_trip=True, warnings=False
        )

    def write(self, value: object) -> bytes:
        """The JSON text; raises whatever pydantic or a user's serialiser raises."""
        return self._serialize(value)

    def write_checked(
        self, value: object, path: str, limit: int = MAX_PAYLOAD
    ) -> tuple[bytes, list[Problem]]:
        """The JSON text, or the reason why a value that seemed storable cannot be written."""
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
    """The paths of objects that have no JSON form."""
    if found := unstorable(value, {id(one) for one in unknown}):
        return found
    return [Problem(path, f"holds {type_name(unknown[0])}, which cannot be JSON")]


def suspicious(text: bytes) -> bool:
    """Whether a user's serialiser may have written something that the value did not show.

    In plain text all of these are harmless; a match only asks for a second check.
    """
    return b"\\u0000" in text or b"NaN" in text or b"Infinity" in text


def oversized(text: bytes, what: str, limit: int) -> list[Problem]:
    if len(text) <= limit:
        return []
    return [Problem("", f"{what} {len(text):,} bytes, {too_big(limit)}")]


def write_result(value: object, annotation: object, limit: int = MAX_PAYLOAD) -> str:
    """The JSON text of a handler's result. It need not read back equal: a tuple may become a
    list."""
    text, problems = b"", unstorable(value, limit=limit)
    if not problems:
        text, problems = writer_of(annotation).write_checked(value, "", limit)
    problems = problems or oversized(text, "the result takes", limit)
    if problems:
        raise InvalidResult(problems)
    return escape_reference(text.decode())


def type_adapter(annotation: object) -> TypeAdapter[Any]:
    """The pydantic adapter of a type; plain JSON if the type is unhashable or unknown to
    pydantic."""
    try:
        return _typed_adapter(annotation)
    except Exception:
        return _typed_adapter(object)


def writer_of(annotation: object) -> Writer:
    """A writer of values of a type; of any type, if this one is unhashable or unknown to
    pydantic."""
    try:
        return _typed_writer(annotation)
    except Exception:
        return _typed_writer(Any)


@lru_cache(maxsize=1024)
def _typed_adapter(annotation: Any) -> TypeAdapter[Any]:
    return TypeAdapter(annotation)


@lru_cache(maxsize=1024)
def _typed_writer(annotation: object) -> Writer:
    return Writer(_typed_adapter(annotation).serializer)
