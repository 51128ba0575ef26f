"""Jobs whose row cannot be read as it should be: shown with what can be read, and the reason.

Nothing of ours writes such a row; a restored dump, an `UPDATE` by hand or a broken disk can. A row
like that must not break a list, a page or a stream for everybody else. Each fact that cannot be
read is replaced by a harmless one of its type, and `Job.unreadable` names all of them.
"""

from __future__ import annotations

from typing import Any

from .lifecycle import STATES, State
from .timestamps import BOUNDS, to_datetime, within_bounds

_MAX_NAMED_PROBLEMS = 5  # problems in one reason


def _unreadable_state() -> State:
    """What `Job.state` is where the row has another word than one of the seven. It is not a member
    of `State`: nothing is filtered, counted or changed by it."""
    made = str.__new__(State, "unreadable")
    made._name_, made._value_ = "UNREADABLE", "unreadable"
    return made


UNREADABLE = _unreadable_state()


def read_state(word: Any) -> State:
    """A stored state for its readers."""
    return STATES.get(word, UNREADABLE) if isinstance(word, str) else UNREADABLE


def read_whole(value: Any) -> int:
    """A stored whole number for its readers; 0 where there is none."""
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return 0


class Repair:
    """Reads the facts of one row one by one, and remembers what is wrong with them."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def moment(self, name: str, value: Any, needed: bool) -> Any:
        if (value is None and not needed) or within_bounds(value):
            return to_datetime(value)
        self.problems.append(f"{name} is {_format_value(value)}, which is no moment {BOUNDS}")
        return to_datetime(0.0 if value is None else value)

    def state(self, value: Any) -> State:
        if (read := read_state(value)) is UNREADABLE:
            self.problems.append(f"state is {_format_value(value)}, which is none")
        return read

    def whole(self, name: str, value: Any) -> int:
        if value.__class__ is int:
            return int(value)
        self.problems.append(f"{name} is {_format_value(value)}, which is no whole number")
        return 0

    def text(self, name: str, value: Any, needed: bool) -> Any:
        if (value is None and not needed) or isinstance(value, str):
            return value
        self.problems.append(f"{name} is {_format_value(value)}, which is no text")
        return str(value)

    def reason(self) -> str | None:
        more = len(self.problems) - _MAX_NAMED_PROBLEMS
        listed = self.problems[:_MAX_NAMED_PROBLEMS] + [f"and {more} more"] * (more > 0)
        return "; ".join(listed) or None


def _format_value(value: Any) -> str:
    return f"{value!r:.60}"
