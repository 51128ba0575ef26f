"""Schedules: the time of each tick, and the policies for missed and overlapping ticks."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice
from typing import Any, Literal, NamedTuple, Self, TypedDict

from .errors import InvalidOption
from .humanize import compact_duration, duration_seconds
from .options import seconds
from .spelling import unknown_option
from .ticks import (
    as_key,
    check_cron,
    check_zone,
    cron_tick,
    latest_cron_tick,
    latest_period_tick,
    period_tick,
)

MISSED = ("once", "none", "all")
OVERLAP = ("allow", "skip", "queue", "cancel")
MIN_PERIOD_S = 1.0
MAX_PERIOD_S = 366 * 86400.0
MAX_JITTER_S = 86400.0
DEFAULT_GRACE_S = 60.0

_KEY = re.compile(r"cron:(.+):(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?)Z(/manual)?", re.DOTALL)


class ScheduleOptions(TypedDict, total=False):
    """The options of a schedule, for type checkers; `ScheduleSpec` documents them."""

    cron: str | None
    every: str | float | timedelta | None
    tz: str | None
    missed: Literal["once", "none", "all"] | None
    overlap: Literal["allow", "skip", "queue", "cancel"] | None
    jitter: float | timedelta | None
    grace: float | timedelta | None


SCHEDULE_OPTIONS = tuple(ScheduleOptions.__annotations__)


@dataclass(frozen=True, slots=True)
class ScheduleSpec:
    """The times of a schedule, and its policies; validated."""

    cron: str | None = None
    every: float | None = None  # seconds; ticks are multiples since 1970 in UTC
    tz: str = "UTC"  # time zone of the cron expression
    missed: str = "once"  # of several missed ticks, run the latest; "none" or "all" of them
    overlap: str = "allow"  # while an earlier run is unfinished: allow, skip, queue one, cancel it
    jitter: float = 0.0  # seconds: a tick's job starts up to this much later, always the same
    grace: float = DEFAULT_GRACE_S  # seconds: with missed="none", a later tick counts as missed

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Validate the options of a caller."""
        spec = {name: value for name, value in given.items() if value is not None}
        if unknown := sorted(set(spec) - set(SCHEDULE_OPTIONS)):
            raise unknown_option(unknown[0], SCHEDULE_OPTIONS, "A schedule")
        if ("cron" in spec) == ("every" in spec):
            raise InvalidOption(option="cron", reason="or every must be given, and not both")
        if "every" in spec:
            if "tz" in spec and spec["tz"] != "UTC":
                raise InvalidOption(option="tz", reason="belongs to cron: every=… counts in UTC")
            spec = {"overlap": "skip", **spec, "every": _period(spec["every"])}
        else:
            spec["cron"] = check_cron(spec["cron"])
        if "tz" in spec:
            spec["tz"] = check_zone(spec["tz"])
        for name, words in (("missed", MISSED), ("overlap", OVERLAP)):
            if name in spec and spec[name] not in words:
                raise InvalidOption(
                    option=name, reason=f"must be one of {', '.join(words)}, not {spec[name]!r:.80}"
                )
        for name in ("jitter", "grace"):
            if name in spec:
                spec[name] = _span(name, spec[name])
        return cls(**spec)

    @staticmethod
    @lru_cache(1024)
    def stored(text: str) -> ScheduleSpec:
        """A stored specification, without checks. A value that is no longer valid fails when its
        next tick is computed."""
        spec = json.loads(text)
        return ScheduleSpec(**{name: spec[name] for name in SPEC_FIELDS if name in spec})

    def changed(self, given: Mapping[str, Any]) -> ScheduleSpec:
        """The specification with some options changed. A period replaces a cron expression, and
        vice versa."""
        kept = self.as_json()
        if given.get("every") is not None:
            kept["cron"] = kept["tz"] = None
        if given.get("cron") is not None:
            kept["every"] = None
        kept |= {name: value for name, value in given.items() if value is not None}
        return ScheduleSpec.of(kept)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    # Ticks, in seconds since 1970

    def next_tick(self, after: float) -> float | None:
        if self.every is not None:
            return period_tick(self.every, after)
        return cron_tick(str(self.cron), self.tz, after)

    def ticks(self, after: float) -> Iterator[float]:
        tick = self.next_tick(after)
        while tick is not None:
            yield tick
            tick = self.next_tick(tick)

    def latest_tick(self, since: float, until: float) -> float | None:
        """The last tick between two times, both included."""
        if self.every is not None:
            tick = latest_period_tick(self.every, until)
            return tick if tick >= since else None
        return latest_cron_tick(str(self.cron), self.tz, since, until)

    def delay(self, name: str, tick: float) -> float:
        """The jitter of a tick: a hash, so that it is the same at each computation."""
        if not self.jitter:
            return 0.0
        digest = hashlib.sha256(f"{name}\n{as_key(tick)}".encode()).digest()
        return round(self.jitter * int.from_bytes(digest[:6]) / 2**48, 3)

    def runs(self, after: float, number: int = 10) -> list[datetime]:
        """The next ticks, in the schedule's time zone."""
        return [moment_in(tick, self.tz) for tick in islice(self.ticks(after), number)]

    def __str__(self) -> str:
        if self.every is not None:
            return f"every {compact_duration(self.every)}"
        return f"{self.cron} {self.tz}"


SPEC_FIELDS = tuple(spec.name for spec in fields(ScheduleSpec))


def moment_in(tick: float, tz: str) -> datetime:
    from .ticks import zone

    return datetime.fromtimestamp(tick, zone(tz))


def tick_key(name: str, tick: float) -> str:
    """The key of a tick's job: it prevents a second job if a tick fires twice."""
    return f"cron:{name}:{as_key(tick)}"


def manual_key(name: str, moment: float) -> str:
    """The key of a job that an operator started; it sorts among those of ticks."""
    return f"{tick_key(name, moment)}/manual"


class JobOrigin(NamedTuple):
    """The schedule and the tick of a job."""

    schedule: str
    tick: datetime
    manual: bool  # started by an operator at this time


def origin_of_key(key: str | None) -> JobOrigin | None:
    """Parse the key of a job; None: no schedule made it."""
    found = _KEY.fullmatch(key or "")
    if found is None:
        return None
    try:
        tick = datetime.fromisoformat(found[2]).replace(tzinfo=UTC)
    except ValueError:  # a caller's own key with an impossible date
        return None
    return JobOrigin(found[1], tick, found[3] is not None)


def tick_of_key(key: str | None) -> datetime | None:
    """The nominal time of a schedule's job, from its key; None: no schedule made it."""
    origin = origin_of_key(key)
    return None if origin is None else origin.tick


def _period(value: object) -> float:
    period = _span("every", value)
    if not MIN_PERIOD_S <= period <= MAX_PERIOD_S:
        raise InvalidOption(
            option="every", reason=f"must be from one second to a year, not {value!r:.80}"
        )
    return period


def _span(name: str, value: object) -> float:
    """Seconds, a timedelta, or text such as '15m'."""
    if isinstance(value, str):
        found = duration_seconds(value)
        if found is None:
            raise InvalidOption(
                option=name,
                reason=f"must be a duration such as 30, '15m' or '2h', not {value!r:.80}",
            )
        value = found
    span = seconds(name, value) or 0.0
    if name == "jitter" and span > MAX_JITTER_S:
        raise InvalidOption(option=name, reason="must be at most a day")
    return span
