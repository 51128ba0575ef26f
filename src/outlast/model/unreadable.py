"""Jobs with an unreadable row: shown with the facts that can be read, and the reason.

Outlast never writes such a row; a restored dump, a manual `UPDATE` or a broken disk can. Such a row
must not break a list, a page or a stream for other jobs. Each unreadable fact is replaced by a
harmless one of its type, and `Job.unreadable` names all of them.
"""

from __future__ import annotations

from typing import Any

from .lifecycle import STATES, State
from .timestamps import BOUNDS, to_datetime, within_bounds

_MAX_NAMED_PROBLEMS = 5  # problems in one reason


def _unreadable_state() -> State:
    """The `Job.state` of a row with an unknown state. It is not a member of `State`: no filter,
    count or change uses it."""
    made = str.__new__(State, "unreadable")
    made._name_, made._value_ = "UNREADABLE", "unreadable"
    return made


UNREADABLE = _unreadable_state()


def read_state(word: object) -> State:
    """A stored state for readers."""
    return STATES.get(word, UNREADABLE) if isinstance(word, str) else UNREADABLE


def read_whole(value: Any) -> int:
    """A stored whole number for readers; 0 if it is unreadable."""
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return 0


class Repair:
    """Reads the facts of one row one by one and collects their problems."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def moment(self, name: str, value: Any, needed: bool) -> object:
        if (value is None and not needed) or within_bounds(value):
            return to_datetime(value)
        self.problems.append(f"{name} is {_format_value(value)}, which is not a time {BOUNDS}")
        return to_datetime(0.0 if value is None else value)

    def state(self, value: object) -> State:
        if (read := read_state(value)) is UNREADABLE:
            self.problems.append(f"state is {_format_value(value)}, which is unknown")
        return read

    def whole(self, name: str, value: object) -> int:
        if value.__class__ is int:
            return int(value)
        self.problems.append(f"{name} is {_format_value(value)}, which is not a whole number")
        return 0

    def text(self, name: str, value: object, needed: bool) -> Any:
        if (value is None and not needed) or isinstance(value, str):
            return value
        self.problems.append(f"{name} is {_format_value(value)}, which is not text")
        return str(value)

    def reason(self) -> str | None:
        more = len(self.problems) - _MAX_NAMED_PROBLEMS
        listed = self.problems[:_MAX_NAMED_PROBLEMS] + [f"and {more} more"] * (more > 0)
        return "; ".join(listed) or None


def _format_value(value: object) -> str:
    return f"{value!r:.60}"
