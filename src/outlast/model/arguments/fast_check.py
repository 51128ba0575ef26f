"""Fast path for common arguments: plain values, lists and dictionaries."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from .storable import MAX_DEPTH, MAX_PAYLOAD, SAFE_TYPES

_PLAIN = SAFE_TYPES | {str, int, float, Decimal}


def is_plain(values: Mapping[str, object], limit: int = MAX_PAYLOAD) -> bool:
    """Whether all values are plain, level by level, in not too many lists and dictionaries.

    Text and numbers are not inspected: writing and reading them back shows their problems. The
    result is valid only together with that round trip.
    """
    level: list[object] = list(values.values())
    if _PLAIN.issuperset(map(type, level)):
        return True
    weight = 0
    for _ in range(MAX_DEPTH):
        if (inner := _inside(level)) is None:
            return False
        # A shared list or text is written once for each reference.
        weight += sum([len(value) if type(value) is str else 1 for value in inner])
        if weight > limit:
            return False
        if _PLAIN.issuperset(map(type, inner)):
            return True
        level = inner
    return False


def _inside(level: list[object]) -> list[object] | None:
    inner: list[object] = []
    for value in level:
        kind = type(value)
        if kind is list:
            inner += value  # type: ignore[arg-type]
        elif kind is dict:
            inner += value  # type: ignore[arg-type]
            inner += value.values()  # type: ignore[attr-defined]
        elif kind not in _PLAIN:
            return None
    return inner
