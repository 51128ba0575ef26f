"""Quotas: how many jobs a queue, or one of its lanes, admits in a period.

    quota="10000/d"     ten thousand jobs a day, from midnight to midnight UTC
    lane_quota="500/h"  five hundred of each lane in an hour, on the hour

A period begins at a multiple of its length since 1970. A job counts once, in the period in which it
was enqueued: retries, redrives and reclaims are the same job.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from .errors import InvalidOption, QuotaExceeded
from .humanize import UNITS, compact_duration

MAX_QUOTA = 1_000_000_000  # jobs
MIN_PERIOD_S, MAX_PERIOD_S = 60.0, 366 * 86400.0  # shorter ones are for rates
_PATTERN = re.compile(r"(\d{1,12}) */ *(\d{1,6})? *([smhd])")


@dataclass(frozen=True, slots=True)
class Quota:
    number: int  # jobs
    period: float  # seconds

    def __str__(self) -> str:
        span = compact_duration(self.period)
        return f"{self.number}/{span[1:] if span[1:] in UNITS else span}"


def read_quota(field: str, value: object) -> Quota | None:
    """A quota such as "10000/d" or "500/15m"."""
    if value is None:
        return None
    match = _PATTERN.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is not None:
        number, count, unit = match.groups()
        quota = Quota(int(number), int(count or 1) * float(UNITS[unit]))
        if 1 <= quota.number <= MAX_QUOTA and MIN_PERIOD_S <= quota.period <= MAX_PERIOD_S:
            return quota
    raise InvalidOption(
        option=field,
        reason=f'must be jobs per period such as "10000/d" or "500/15m" (m, h, d; at least a'
        f" minute: use a rate for less), not {value!r:.80}",
    )


def quota_text(field: str, value: object) -> str | None:
    """A quota as text, in the form that is stored and shown."""
    quota = read_quota(field, value)
    return None if quota is None else str(quota)


def quota_exceeded(
    queue: str, lane: str | None, *, asked: int, allowed: int, used: int, resets_at: datetime
) -> QuotaExceeded:
    """The error for a refused enqueue, with the time at which there is room again."""
    if asked > allowed:
        advice = "No period admits that many in one call: enqueue fewer at a time."
    else:
        advice = f"There is room again at {resets_at:%Y-%m-%d %H:%M:%S} UTC."
    return QuotaExceeded(
        subject=f"the queue {queue!r}" if lane is None else f"lane {lane!r} of the queue {queue!r}",
        advice=advice, queue=queue, lane=lane, asked=asked, allowed=allowed, used=used,
        resets_at=resets_at,
    )  # fmt: skip
