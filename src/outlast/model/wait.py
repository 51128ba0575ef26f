"""Durable waits: the subject of a handler's wait, its outcome, and the end of its attempt.

ctx.wait(…) ─┬─ ended before ──▶ the stored outcome
             ├─ a signal is there, or it has timed out ──▶ decided and stored under the claim
             └─ neither ──▶ `Waiting` ends the attempt; the row waits, and the handler starts
                            again when something wakes it
"""

from __future__ import annotations

from collections.abc import Container
from enum import StrEnum
from typing import Any, NamedTuple

from .errors import InvalidOption
from .humanize import duration_seconds, format_duration
from .options import check_name, seconds


class WaitKind(StrEnum):
    SLEEP = "sleep"
    SIGNAL = "signal"
    JOB = "job"
    FLOW = "flow"


class WaitOutcome(StrEnum):
    """The event that ended a wait. (A sleep ends by the clock alone.)"""

    SIGNAL = "signal"
    TIMED_OUT = "timed-out"
    ENDED = "ended"  # the job or flow


class Wait(NamedTuple):
    """The subject of a handler's wait, and the wait's name, which is unique within the job."""

    name: str
    kind: WaitKind
    subjects: tuple[str, ...] = ()  # names of signals, or the id of a job or flow
    delay: float | None = None  # seconds to sleep, or until it times out; None: no time-out
    due: float | None = None  # the same as a time, if the wait began in an earlier attempt
    awaits: str | None = None  # the job whose end wakes this one
    forms: str | None = None  # JSON schemas of typed signals by name, as JSON


class KeptWait(NamedTuple):
    """A wait that began in an earlier attempt."""

    name: str
    kind: str
    subjects: str  # JSON
    since: float
    until: float | None
    outcome: str | None = None
    source: str | None = None  # the name of the signal, or the final state of the job
    result: str | None = None  # JSON
    is_due: bool = False
    age: float = 0.0  # seconds since it began

    @property
    def over(self) -> bool:
        """Whether the handler continues without another check."""
        return self.outcome is not None or (self.kind == WaitKind.SLEEP and self.is_due)


class Waiting(BaseException):
    """Ends an attempt whose handler waits. Not an error, and not an `Exception`: handlers that
    catch those do not catch it."""

    def __init__(self, wait: Wait) -> None:
        super().__init__(f"waiting for {wait.name!r}")
        self.wait = wait


def waiting_in(error: BaseException) -> Wait | None:
    """The wait that ended an attempt, also if a task group contains it and no other failure."""
    if isinstance(error, Waiting):
        return error.wait
    if isinstance(error, BaseExceptionGroup):
        waits = [waiting_in(one) for one in error.exceptions]
        return waits[0] if None not in waits else None
    return None


def read_wait(fields: Any) -> Wait | None:
    """A wait that another process has written as a JSON array."""
    if fields is None:
        return None
    name, kind, subjects, *rest = fields
    return Wait(name, WaitKind(kind), tuple(subjects), *rest)


def wait_seconds(option: str, value: object) -> float:
    """A duration as seconds: a number, a timedelta, or a text such as "90s", "2h" or "3d"."""
    if isinstance(value, str):
        if (parsed := duration_seconds(value)) is None:
            reason = 'must be seconds, a timedelta or a text such as "90s", "2h", "3d", not'
            raise InvalidOption(option=option, reason=f"{reason} {value!r:.80}")
        value = parsed
    found = seconds(option, value)
    if found is None:
        raise InvalidOption(option=option, reason="must be a duration, not None")
    return found


def free_name(base: str, taken: Container[str]) -> str:
    """The automatic name of a wait: `approval`, `approval#2`, … in the order of the calls."""
    if base not in taken:
        return base
    number = 2
    while (name := f"{base}#{number}") in taken:
        number += 1
    return name


def signal_names(names: tuple[Any, ...]) -> tuple[str, ...]:
    if not names:
        raise InvalidOption(option="wait_any", reason="needs the name of a signal")
    for name in names:
        check_name("signal", name)
    return tuple(dict.fromkeys(names))


def describe_subjects(kind: str, subjects: tuple[str, ...]) -> str:
    """The subject of a wait, in words."""
    match kind:
        case WaitKind.SIGNAL:
            many = "signals" if len(subjects) > 1 else "signal"
            return f"{many} {' or '.join(subjects)}"
        case WaitKind.JOB | WaitKind.FLOW:
            return f"{kind} {' '.join(subjects)}".strip()
        case _:
            return "sleep"


def describe_wait(kind: str, subjects: tuple[str, ...], spent: float, outcome: str | None) -> str:
    """One line of a job's history: `waited 2.0 d for approval`."""
    if kind == WaitKind.SLEEP:
        return f"slept {format_duration(spent)}"
    what = " or ".join(subjects) if kind == WaitKind.SIGNAL else describe_subjects(kind, subjects)
    late = ", timed out" if outcome == WaitOutcome.TIMED_OUT else ""
    return f"waited {format_duration(spent)} for {what}{late}"
