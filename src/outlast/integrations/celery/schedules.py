"""`celery.schedules`: `crontab` and `schedule` of a beat schedule."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from ...model.errors import InvalidOption

Field = int | str | Iterable[int]

_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
_DAYS = "sun mon tue wed thu fri sat".split()


class CrontabSchedule:
    """`crontab(minute=0, hour="*/3", day_of_week="mon-fri")`. Omitted fields are `*`. The time zone
    is `app.conf.timezone`."""

    def __init__(
        self,
        minute: Field = "*",
        hour: Field = "*",
        day_of_week: Field = "*",
        day_of_month: Field = "*",
        month_of_year: Field = "*",
        **others: object,
    ) -> None:
        if others:
            reason = f"takes no {', '.join(sorted(others))}: its time zone is app.conf.timezone"
            raise InvalidOption(option="crontab", reason=reason)
        self.cron = " ".join(
            (
                _field("minute", minute, 0, 59),
                _field("hour", hour, 0, 23),
                _field("day_of_month", day_of_month, 1, 31),
                _field("month_of_year", month_of_year, 1, 12, _MONTHS, first=1),
                _field("day_of_week", day_of_week, 0, 6, _DAYS),
            )
        )
        _, _, of_month, _, of_week = self.cron.split()
        if "*" not in (of_month, of_week):
            # Celery runs if both match, cron if one of them does.
            raise InvalidOption(
                option="crontab",
                reason="cannot have both day_of_week and day_of_month: schedule by one of them, and"
                " check the other in the task",
            )

    @classmethod
    def from_string(cls, text: str) -> CrontabSchedule:
        minute, hour, day_of_month, month_of_year, day_of_week = text.split(" ")
        return cls(minute, hour, day_of_week, day_of_month, month_of_year)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CrontabSchedule) and self.cron == other.cron

    def __hash__(self) -> int:
        return hash(self.cron)

    def __repr__(self) -> str:
        return f"<crontab {self.cron}>"


class IntervalSchedule:
    """`schedule(run_every=30)`: seconds, or a timedelta."""

    def __init__(self, run_every: float | timedelta, relative: bool = False, **_: object) -> None:
        self.run_every = run_every


crontab = CrontabSchedule
schedule = IntervalSchedule


def __getattr__(name: str) -> Any:
    if name == "solar":
        raise ImportError("solar schedules are not supported: use crontab(…)")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _field(
    name: str, given: Field, low: int, high: int, words: Iterable[str] = (), first: int = 0
) -> str:
    """The numbers of a field, as Celery expands it: ranges may wrap around."""
    known = {word: number for number, word in enumerate(words, first)}
    try:
        values = set(_expanded(given, low, high, known))
    except (ValueError, TypeError) as error:
        raise InvalidOption(option=f"crontab {name}", reason=str(error)) from error
    if not values or not all(low <= one <= high for one in values):
        reason = f"must be from {low} to {high}, not {given!r:.80}"
        raise InvalidOption(option=f"crontab {name}", reason=reason)
    full = len(values) == high - low + 1
    return "*" if full else ",".join(str(one) for one in sorted(values))


def _expanded(given: Field, low: int, high: int, known: dict[str, int]) -> list[int]:
    if isinstance(given, int):
        return [given]
    if not isinstance(given, str):
        return [int(one) for one in given]
    return [one for part in given.split(",") for one in _part(part.strip(), low, high, known)]


def _part(part: str, low: int, high: int, known: dict[str, int]) -> list[int]:
    span, slash, step = part.partition("/")
    if slash and int(step) < 1:
        raise ValueError(f"must step by 1 or more, not {part!r}")
    start, dash, end = span.partition("-")
    if span == "*":
        values = list(range(low, high + 1))
    elif dash:
        begin, last = _number(start, known), _number(end, known)
        wrapped = [*range(begin, high + 1), *range(low, last + 1)]
        values = wrapped if last < begin else list(range(begin, last + 1))
    else:
        values = [_number(start, known)]
    return values[:: int(step)] if slash else values


def _number(text: str, known: dict[str, int]) -> int:
    if text.isdecimal():
        return int(text)
    if (found := known.get(text.lower()[:3])) is None:
        raise ValueError(f"has {text!r:.80}, which is neither a number nor a name")
    return found
