"""Paths in a call's arguments: `doc`, `items[3].price`, `meta['a b']`."""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..safe_text import storable_text, type_name

Trail = Sequence[object]

_UNKNOWN = object()


def render(trail: Trail) -> str:
    """A trail of keys and indexes in Python syntax."""
    return storable_text("".join(map(_step, trail)).removeprefix("."), 200)


def _step(key: object) -> str:
    if isinstance(key, str) and str.isidentifier(key) and str.isprintable(key):
        return f".{storable_text(key, 60)}"
    return f"[{short_repr(key)}]"


def short_repr(value: object) -> str:
    """A value's repr as one short line."""
    return storable_text(_SHORT.repr(value), 100)


class _Short(reprlib.Repr):
    """Calls `repr` only on types of the standard library: others may raise, or never return."""

    def repr_instance(self, value: object, level: int) -> str:
        if type(value).__module__ in ("builtins", "datetime", "decimal", "uuid"):
            return repr(value)
        return f"<{type_name(value)}>"


_SHORT = _Short()


def named_fields(value: object) -> dict[str, Any] | None:
    """The fields of a dataclass, a named tuple or a pydantic model; None for other values."""
    kind = type(value)
    if hasattr(kind, "__dataclass_fields__"):
        names: Iterable[str] = (field.name for field in dataclasses.fields(value))  # type: ignore[arg-type]
        return {name: getattr(value, name) for name in names if hasattr(value, name)}
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return dict(zip(kind._fields, value, strict=True))
    if hasattr(kind, "__pydantic_fields__"):
        # By its dunder: isinstance would import pydantic in every process.
        state: Any = value
        own = {name: state.__dict__[name] for name in kind.__pydantic_fields__}
        return own | (state.__pydantic_extra__ or {}) | (state.__pydantic_private__ or {})
    return None


def actual_path(loc: Iterable[int | str], value: object, *, missing: bool) -> list[object]:
    """Pydantic's location of an error, without the names of union branches and validators.

    A missing value is absent from the data, and still has a path.
    """
    trail: list[object] = []
    steps = list(loc)
    for number, key in enumerate(steps, start=1):
        inner = _child(value, key)
        if inner is not _UNKNOWN:
            trail.append(key)
            value = inner
        elif isinstance(key, int) or (missing and number == len(steps)):
            trail.append(key)
    return trail


def _child(value: object, key: int | str) -> object:
    if isinstance(value, Mapping):
        return value.get(key, _UNKNOWN)
    if isinstance(key, int):
        inside = isinstance(value, (list, tuple)) and key < len(value)
        return value[key] if inside else _UNKNOWN  # type: ignore[index]
    return (named_fields(value) or {}).get(key, _UNKNOWN)


def overlaps(one: str, other: str) -> bool:
    """Whether two paths are equal, or one is inside the other."""
    inner, outer = (one, other) if len(one) > len(other) else (other, one)
    return inner.startswith(outer) and inner[len(outer) : len(outer) + 1] in ("", ".", "[")
