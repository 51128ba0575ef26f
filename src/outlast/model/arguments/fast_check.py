"""A quick look at arguments that are what most arguments are: plain values, lists, dictionaries."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from .storable import MAX_DEPTH, MAX_PAYLOAD, SAFE_TYPES

_PLAIN = SAFE_TYPES | {str, int, float, Decimal}


def is_plain(values: Mapping[str, object], limit: int = MAX_PAYLOAD) -> bool:
    """Level by level: nothing but plain values, in not too many lists and dictionaries?

    It does not look inside text and numbers: what is wrong there shows when they are written and
    read back. So it may only be trusted together with that.
    """
    level: list[object] = list(values.values())
    if _PLAIN.issuperset(map(type, level)):
        return True
    weight = 0
    for _ in range(MAX_DEPTH):
        if (inner := _inside(level)) is None:
            return False
        # One list, or one text, in many places is written many times.
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
