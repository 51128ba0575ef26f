"""Find the places where a value read back from its JSON text differs from the given one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from ..errors import Problem
from ..safe_text import error_summary, type_name
from .value_path import named_fields, render, short_repr

_ABSENT = object()


def differences(given: object, back: object, trail: tuple[object, ...] = ()) -> Iterator[Problem]:
    """One problem for each place where the two values differ."""
    try:
        if given is not _ABSENT and back is not _ABSENT and (given == back or _one(given, back)):
            return
        pairs = _pairs(given, back)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # __eq__ belongs to the user, or to numpy
        yield Problem(
            render(trail), f"cannot be compared with what comes back: {error_summary(error)}"
        )
        return
    if pairs is None:
        yield Problem(render(trail), _change(given, back, trail))
        return
    for key, one, other in pairs:
        yield from differences(one, other, (*trail, key))


def _one(given: object, back: object) -> bool:
    """Compare moments by instant: in the hour when clocks change, Python calls equal moments in two
    zones unequal (PEP 495)."""
    if isinstance(given, datetime) and isinstance(back, datetime) and given.tzinfo and back.tzinfo:
        return given.astimezone(UTC) == back.astimezone(UTC)
    return False


def _pairs(given: object, back: object) -> list[tuple[object, object, object]] | None:
    """The parts to compare of two unequal values of the same kind."""
    ours, theirs = _parts(given), _parts(back)
    mappings = isinstance(given, Mapping) and isinstance(back, Mapping)
    if ours is None or theirs is None or not (mappings or type(given) is type(back)):
        return None
    # A key that became text is missing on one side and new on the other: one problem, not two.
    keys = ours if ours.keys() - theirs.keys() else theirs
    return [(key, ours.get(key, _ABSENT), theirs.get(key, _ABSENT)) for key in keys]


def _parts(value: object) -> dict[Any, Any] | None:
    if isinstance(value, Mapping):
        return dict(value)
    if (named := named_fields(value)) is not None:
        return named
    return dict(enumerate(value)) if isinstance(value, (list, tuple)) else None


def _change(given: object, back: object, trail: tuple[object, ...]) -> str:
    if given is _ABSENT:
        return f"was not given and would come back as {short_repr(back)}"
    if back is _ABSENT and not isinstance(trail[-1], str):
        kind = type_name(trail[-1])
        return f"the key is of type {kind} and JSON keys are text: annotate the type of the keys"
    if back is _ABSENT:
        return "would not come back"
    if type(given) is type(back):
        return f"would come back as {short_repr(back)}, which is not equal"
    return (
        f"{type_name(given)} would come back as {type_name(back)}, {short_repr(back)}: "
        "pass that, or annotate the exact type"
    )
