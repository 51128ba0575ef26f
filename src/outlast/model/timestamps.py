"""Timestamps within bounds: validated on input, read without failing on output.

A moment is stored only if every reader can show it: Python's dates end with the year 9999, time
zones shift a date by up to a day, and PostgreSQL and SQLite hold dates far beyond both. The years
1970 to 9000 are safe in every time zone and in every client of the HTTP API.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, overload

from .errors import InvalidOption

FIRST_YEAR, LAST_YEAR = 1970, 9000
EARLIEST = 0.0  # seconds since 1970
LATEST = datetime(LAST_YEAR + 1, 1, 1, tzinfo=UTC).timestamp()  # exclusive
BOUNDS = f"from {FIRST_YEAR} to {LAST_YEAR}"

_FIRST = datetime(FIRST_YEAR, 1, 1, tzinfo=UTC)
_LAST = datetime(LAST_YEAR, 12, 31, 23, 59, 59, tzinfo=UTC)


def is_finite(value: object) -> bool:
    """Whether a value is a number that a float can hold; an int may have a thousand digits."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def to_epoch(name: str, value: object) -> float | None:
    """A datetime as seconds since 1970; raises for a naive one, which is ambiguous."""
    if value is None:
        return None
    if not isinstance(value, datetime):
        raise InvalidOption(option=name, reason=f"must be a datetime, not {value!r:.80}")
    try:
        offset = value.utcoffset()  # None if naive, or if the time zone does not define it
        since = None if offset is None else (value - offset).replace(tzinfo=UTC).timestamp()
    except OverflowError:  # the first or last representable day, in another time zone
        raise _out_of_bounds(name, value) from None
    if since is None:
        raise InvalidOption(
            option=name,
            reason=f"needs a time zone, and {value.isoformat()} has none: write datetime.now(UTC)"
            " or datetime(…, tzinfo=UTC)",
        )
    if not within_bounds(since):
        raise _out_of_bounds(name, value)
    return since


def check_epoch(name: str, value: float | None) -> float | None:
    """Validate a moment given as seconds since 1970."""
    if value is not None and not within_bounds(value):
        raise InvalidOption(option=name, reason=f"must be a time {BOUNDS}, not {value!r:.80}")
    return value


def within_bounds(since: Any) -> bool:
    return is_finite(since) and EARLIEST <= since < LATEST


def age(seconds: object) -> float:
    """A stored duration for readers: finite, whatever moments it was computed from."""
    if not isinstance(seconds, int | float) or math.isnan(seconds):
        return 0.0
    return min(max(float(seconds), -LATEST), LATEST)


@overload
def to_datetime(since: float) -> datetime: ...
@overload
def to_datetime(since: None) -> None: ...
@overload
def to_datetime(since: float | None) -> datetime | None: ...


@lru_cache(64)  # jobs of one call often share timestamps
def to_datetime(since: float | None) -> datetime | None:
    """A stored moment for readers. A moment out of bounds is clamped, because lists and pages sort
    and subtract moments; `read_job` reports it as unreadable."""
    if since is None:
        return None
    if within_bounds(since):
        return datetime.fromtimestamp(since, UTC)
    return _LAST if isinstance(since, int | float) and since >= LATEST else _FIRST


def _out_of_bounds(name: str, value: datetime) -> InvalidOption:
    return InvalidOption(option=name, reason=f"must be a time {BOUNDS}, not {value.isoformat()}")
