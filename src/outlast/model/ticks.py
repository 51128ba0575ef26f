"""Ticks of a schedule: of a cron expression in a time zone, or of a period.

A cron expression with fixed minutes and hours ("30 2 * * *") has one tick on each matching day,
also when clocks change: a time that is skipped moves to the end of the gap, and a time that occurs
twice counts once, the first time. One with a wildcard ("*/10 * * * *") has a tick whenever a wall
clock shows a matching time. Debian's cron has the same rules.

cronsim finds matching wall-clock times; this module converts them to UTC, because a zone may change
its offset by half an hour, or by more than one hour at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

from .errors import InvalidOption
from .timestamps import LATEST

MAX_CRON_CHARS = 200
NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_DAY_S = 86400
_HALF_DAY_S = 43200  # offset changes are never closer than this
_EPOCH = datetime(1970, 1, 1)
_MICROSECONDS = 1_000_000


def check_cron(text: object) -> str:
    """A cron expression of five or six fields (seconds first), or a nickname, in full."""
    if not isinstance(text, str) or len(text) > MAX_CRON_CHARS:
        raise InvalidOption(
            option="cron", reason=f"must be a text such as '30 2 * * *', not {text!r:.80}"
        )
    from cronsim import CronSimError

    plain = " ".join(NICKNAMES.get(text.strip().lower(), text).split())
    try:
        next(_wall_times(plain, 0.0))
    except StopIteration:
        raise InvalidOption(option="cron", reason=f"never matches a date: {text!r}") from None
    except (CronSimError, ValueError, AssertionError) as error:
        raise InvalidOption(
            option="cron",
            reason=f"is not a cron expression: {text!r} ({error or 'cannot be read'}); write"
            " minute, hour, day of month, month and day of week, such as '30 2 * * *'",
        ) from None
    return plain


def check_zone(name: object) -> str:
    """The name of a time zone that this machine has."""
    name = name.key if isinstance(name, ZoneInfo) else name
    try:
        if not isinstance(name, str) or not name:
            raise ValueError
        return zone(name).key
    except (KeyError, ValueError, OSError):
        raise InvalidOption(
            option="tz",
            reason=f"must be a time zone such as 'Europe/Berlin' or 'UTC', not {name!r:.80}",
        ) from None


@lru_cache(256)
def zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)


@lru_cache(4096)
def cron_tick(cron: str, tz: str, after: float) -> float | None:
    """The first tick after a time, in seconds since 1970; None: there is none. Thousands of
    schedules may share an expression, and are then due together."""
    if tz == "UTC":
        found = next(_wall_times(cron, after), None)
    elif _has_fixed_times(cron):
        found = _next_fixed(cron, zone(tz), after)
    else:
        found = _next_shown(cron, zone(tz), after)
    return None if found is None or found >= LATEST else found


def period_tick(every: float, after: float) -> float:
    """The first multiple of a period after a time. Counted in microseconds, as databases store
    times: a sum of fractions may differ from the stored tick, which would then fire twice."""
    period = round(every * _MICROSECONDS)
    return (round(after * _MICROSECONDS) // period + 1) * period / _MICROSECONDS


def latest_period_tick(every: float, until: float) -> float:
    """The last multiple of a period until a time, included."""
    period = round(every * _MICROSECONDS)
    return round(until * _MICROSECONDS) // period * period / _MICROSECONDS


def latest_cron_tick(cron: str, tz: str, since: float, until: float) -> float | None:
    """The last tick between two times, both included. A binary search: a gap of years may have
    millions of ticks."""
    low, high = math.ceil(since) - 1, math.floor(until)
    last = cron_tick(cron, tz, low)
    if last is None or last > until:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        tick = cron_tick(cron, tz, middle)
        if tick is None or tick > until:
            high = middle
        else:
            low, last = int(tick) - 1, tick
    return last


def _has_fixed_times(cron: str) -> bool:
    fields = cron.split()
    return len(fields) == 5 and not fields[0].startswith("*") and not fields[1].startswith("*")


def _wall_times(cron: str, after: float) -> Iterator[float]:
    """Matching wall-clock times after one, without any change of offset, in seconds since 1970."""
    from cronsim import CronSim  # an import that defining tasks does not need

    times = CronSim(cron, _EPOCH + timedelta(seconds=math.floor(after)))
    return ((time - _EPOCH).total_seconds() for time in times)


def _offset(tz: ZoneInfo, moment: float) -> float:
    """A zone's offset from UTC at a time, in seconds."""
    offset = datetime.fromtimestamp(moment, tz).utcoffset()
    assert offset is not None
    return offset.total_seconds()


def _next_shown(cron: str, tz: ZoneInfo, after: float) -> float | None:
    """The first time at which a clock shows a matching time. If the offset changes before, the
    search restarts there: the clock may go back to times that it has shown."""
    offset = _offset(tz, after)
    wall = after + offset
    while True:
        time = next(_wall_times(cron, wall), None)
        if time is None or time >= LATEST - 2 * _DAY_S:
            return None
        change = _next_change(tz, after, time - offset)
        if change is None:
            return time - offset
        after, offset = change, _offset(tz, change)
        wall = change + offset - 1.0  # the time shown at the change may match


def _next_change(tz: ZoneInfo, after: float, until: float) -> float | None:
    """The first change of offset within a span, after its beginning."""
    for year in range(_year(after), _year(until) + 1):
        for change in _changes(tz.key, year):
            if after < change <= until:
                return change
    return None


def _year(moment: float) -> int:
    return datetime.fromtimestamp(moment, UTC).year


@lru_cache(4096)
def _changes(tz: str, year: int) -> tuple[float, ...]:
    """The times of a zone's offset changes in a year."""
    start = int(datetime(year, 1, 1, tzinfo=UTC).timestamp())
    half_days = [float(start + half * _HALF_DAY_S) for half in range(-1, 2 * 366 + 1)]
    pairs = [
        (before, after)
        for before, after in pairwise(half_days)
        if _offset(zone(tz), before) != _offset(zone(tz), after)
    ]
    changes = (_change_between(zone(tz), before, after) for before, after in pairs)
    return tuple(change for change in changes if _year(change) == year)


def _change_between(tz: ZoneInfo, before: float, after: float) -> float:
    """The first second of a new offset between two times with different offsets."""
    offset, low, high = _offset(tz, before), math.floor(before), math.ceil(after)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _offset(tz, middle) == offset else (low, middle)
    return float(high)


def _next_fixed(cron: str, tz: ZoneInfo, after: float) -> float | None:
    """The first matching wall-clock time that is later in UTC: a time that is shown twice has
    passed when it is shown again, and several times in one gap are the same moment."""
    wall = after + _offset(tz, after)
    for time in islice(_wall_times(cron, wall), 100_000):
        moment = _moment_of(time, tz)
        if moment > after:
            return moment
    return None


def _moment_of(time: float, tz: ZoneInfo) -> float:
    """The first moment at which clocks show a time; for a time in a gap, the end of the gap."""
    if time >= LATEST - 2 * _DAY_S:
        return math.inf
    shown = (_EPOCH + timedelta(seconds=time)).replace(tzinfo=tz)
    moment = shown.timestamp()
    if datetime.fromtimestamp(moment, tz).replace(tzinfo=None) == shown.replace(tzinfo=None):
        return moment
    return _change_between(tz, moment - _HALF_DAY_S, moment)


@lru_cache(256)
def as_key(tick: float) -> str:
    """A tick in UTC, as in the keys of jobs."""
    text = datetime.fromtimestamp(tick, UTC).isoformat(timespec="auto")
    return text.replace("+00:00", "Z")
