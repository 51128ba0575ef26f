"""Limits of a queue and of its lanes, as `ol.queue(…)` declares them.

A lane is a group of jobs in a limited queue that share limits and take turns with other lanes.
Limits are declared in code and may be changed at run time; an operator's change stays in force
across deployments until it is reset.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import Any, Literal, TypedDict

from .errors import InvalidOption
from .options import MAX_NAME_CHARS, check_name
from .quota import quota_text, read_quota
from .spelling import unknown_option
from .timestamps import is_finite

BY_TENANT = "tenant"
DEFAULT_LANE = "default"  # of a job in a limited queue that has no other
ON_DEAD = ("pass", "block")
TELL = "tell"
OVERFLOWS = (TELL, "refuse", "drop_oldest", "drop_new", "wait")
MAX_LIMIT = 1_000_000  # jobs
MAX_WAITING = 1_000_000_000  # jobs
MAX_WEIGHT = 1000
MAX_WEIGHTS = 10_000  # lanes with their own weight
MAX_RATE = 1_000_000.0  # starts per second
MIN_RATE = 1 / (366 * 86400)
MAX_SLOW_DOWN_S = 86400  # of `ctx.slow_down(…)`
_RATE_PATTERN = re.compile(r"(\d+(?:\.\d+)?) */ *(\d+)? *(s|m|h|d)")
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}

Overflow = Literal["tell", "refuse", "drop_oldest", "drop_new", "wait"]
Rate = str | float | None  # "600/m", "5/s", "100/15m"; or starts per second


class LimitOptions(TypedDict, total=False):
    """The limits that `ol.limit(…)` changes, for type checkers; `QueueLimits` documents them."""

    running: int | None
    lane_running: int | None
    rate: Rate
    lane_rate: Rate
    burst: int | None
    weights: Mapping[str, int] | None
    on_dead: str
    most_waiting: int | None
    overflow: Overflow
    quota: str | None
    lane_quota: str | None


class QueueOptions(LimitOptions, total=False):
    """The options of `ol.queue(…)`: limits, and how jobs get their lanes."""

    lane: Literal["tenant"] | None
    ordered: bool
    lane_batch: int | None


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """The limits of a queue; None: no limit.

    `lane_batch` is for batch tasks that keep the order of a lane themselves: one worker at a time
    has jobs of the lane, at most that many. A job that was tried before is claimed alone.
    """

    name: str
    running: int | None = None  # concurrent jobs of the queue
    lane: str | None = None  # "tenant": a job's lane is its tenant, unless it names one
    lane_running: int | None = None  # concurrent jobs of each lane
    rate: Rate = None  # starts of the queue
    lane_rate: Rate = None  # starts of each lane
    burst: int | None = None  # starts at once after a pause; None: one second of the rate
    weights: Mapping[str, int] | None = None  # jobs per turn of a lane; default 1
    ordered: bool = False  # each lane runs one job at a time, in order
    lane_batch: int | None = None  # jobs of an ordered lane claimed together; None: one
    on_dead: str = "pass"  # effect of a dead job on its ordered lane: "pass" | "block"
    most_waiting: int | None = None  # ready jobs in a full queue
    overflow: Overflow = "tell"  # effect of a full queue on an enqueue
    quota: str | None = None  # jobs of the whole queue that are admitted in a period: "10000/d"
    lane_quota: str | None = None  # jobs of one lane

    def __post_init__(self) -> None:
        for field in ("running", "lane_running"):
            _check_whole(field, getattr(self, field), 0, MAX_LIMIT)
        _check_whole("burst", self.burst, 1, MAX_LIMIT)
        _check_whole("lane_batch", self.lane_batch, 1, MAX_LIMIT)
        _check_whole("most_waiting", self.most_waiting, 1, MAX_WAITING)
        if self.overflow not in OVERFLOWS:
            raise InvalidOption(
                option="overflow",
                reason=f"must be one of {', '.join(OVERFLOWS)}, not {self.overflow!r:.80}",
            )
        for field in ("rate", "lane_rate"):
            object.__setattr__(self, field, rate_per_second(field, getattr(self, field)))
        for field in ("quota", "lane_quota"):
            object.__setattr__(self, field, quota_text(field, getattr(self, field)))
        if self.lane not in (None, BY_TENANT):
            raise InvalidOption(
                option="lane", reason=f'must be "{BY_TENANT}" or left out, not {self.lane!r:.80}'
            )
        object.__setattr__(self, "weights", _checked_weights(self.weights))
        if not isinstance(self.ordered, bool):
            raise InvalidOption(
                option="ordered", reason=f"must be True or False, not {self.ordered!r:.80}"
            )
        if self.on_dead not in ON_DEAD:
            raise InvalidOption(
                option="on_dead",
                reason=f"must be one of {', '.join(ON_DEAD)}, not {self.on_dead!r:.80}",
            )
        self._check_together()

    def _check_together(self) -> None:
        if self.ordered and self.lane_running is None:
            object.__setattr__(self, "lane_running", 1)
        if self.ordered and self.lane_running not in (0, 1):
            raise InvalidOption(
                option="lane_running",
                reason=f"must be 1 where ordered=True, not {self.lane_running}",
            )
        if self.burst is not None and self.rate is None and self.lane_rate is None:
            raise InvalidOption(option="burst", reason="needs a rate or a lane_rate")
        if self.overflow != TELL and self.most_waiting is None:
            raise InvalidOption(option="overflow", reason="needs most_waiting=…")
        if self.lane_batch is not None and not self.ordered:
            raise InvalidOption(option="lane_batch", reason="is for queues with ordered=True")
        if self.on_dead == "block" and not self.ordered:
            raise InvalidOption(option="on_dead", reason="is for queues with ordered=True")

    @property
    def bounded(self) -> bool:
        """Whether an enqueue must reserve room."""
        return self.most_waiting is not None and self.overflow != TELL

    @property
    def limited(self) -> bool:
        """Whether its jobs have lanes; otherwise the queue is claimed without turns."""
        return self.ordered or any(
            value is not None
            for value in (
                self.running, self.lane, self.lane_running, self.rate, self.lane_rate, self.weights,
                self.lane_quota,
            )
        )  # fmt: skip

    @property
    def has_quota(self) -> bool:
        """Whether new jobs are counted."""
        return self.quota is not None or self.lane_quota is not None

    @classmethod
    def declared(cls, name: str, **limits: Any) -> QueueLimits:
        """Limits declared in code, with a checked name. A stored name may be any text."""
        check_name("queue", name)
        if not isinstance(name, str):
            raise InvalidOption(option="queue", reason="must be a name")
        for option in limits:
            if option not in QueueOptions.__annotations__:
                raise unknown_option(
                    option, sorted(QueueOptions.__annotations__), "Outlast.queue()"
                )
        return cls(name, **limits)

    def with_overrides(self, overrides: Mapping[str, Any]) -> QueueLimits:
        """These limits with an operator's overrides. An override that contradicts the declaration
        (two at a time in an ordered lane) has no effect."""
        try:
            return replace(self, **overrides)
        except InvalidOption:
            limits = self
            for field, value in overrides.items():
                with suppress(InvalidOption):
                    limits = replace(limits, **{field: value})
            return limits

    def as_json(self) -> dict[str, Any]:
        """The fields that differ from a queue without limits, as JSON values."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            name: value
            for name, value in values.items()
            if name != "name" and value != getattr(_NO_LIMITS, name)
        }

    @classmethod
    def from_json(cls, name: str, text: str | None) -> QueueLimits:
        """Limits as stored. Fields of a later release are ignored."""
        known = {field.name for field in fields(cls)} - {"name"}
        stored = json.loads(text) if text else {}
        return cls(name).with_overrides({key: stored[key] for key in stored if key in known})

    def in_words(self, running: int | None = None) -> str:
        """The limits for people: "12 of 50 running, 3 of a lane, 10/s"."""
        of = "" if running is None else f"{running} of "
        rates = (self.rate, ""), (self.lane_rate, " of a lane")
        parts = [f"{of}{self.running} running"] * (self.running is not None)
        parts += [f"{self.lane_running} of a lane"] * (self.lane_running is not None)
        parts += [f"{rate:g}/s{whose}" for rate, whose in rates if rate is not None]
        quotas = (self.quota, ""), (self.lane_quota, " of a lane")
        parts += [f"{quota} admitted{whose}" for quota, whose in quotas if quota is not None]
        parts += ["lanes by tenant"] * (self.lane is not None)
        parts += [f"in order ({self.on_dead} on dead)"] * self.ordered
        parts += [f"{len(self.weights or ())} weights"] * bool(self.weights)
        return ", ".join(parts) or "no limits"

    def row(self) -> dict[str, object]:
        """The columns of the limits in force."""
        quota, lane_quota = read_quota("", self.quota), read_quota("", self.lane_quota)
        return {
            "name": self.name,
            "limited": self.limited,
            "running": self.running,
            "lane_by": self.lane,
            "lane_running": self.lane_running,
            "rate": self.rate,
            "lane_rate": self.lane_rate,
            "burst": self.burst,
            "weights": None if self.weights is None else json.dumps(dict(self.weights)),
            "ordered": self.ordered,
            "lane_batch": self.lane_batch,
            "on_dead": self.on_dead if self.ordered else None,
            "most_waiting": self.most_waiting,
            "overflow": self.overflow if self.most_waiting else None,
            "quota": quota and quota.number,
            "quota_period": quota and quota.period,
            "lane_quota": lane_quota and lane_quota.number,
            "lane_quota_period": lane_quota and lane_quota.period,
        }


def in_force(name: str, declared: str | None, overrides: str | None) -> QueueLimits:
    """The limits of a queue, from stored text."""
    limits = QueueLimits.from_json(name, declared)
    return limits.with_overrides(json.loads(overrides)) if overrides else limits


CHANGEABLE = frozenset(LimitOptions.__annotations__)


def checked_overrides(given: Mapping[str, Any]) -> dict[str, Any]:
    """Validate limits to change at run time. `lane` and `ordered` are declared in code: they cannot
    change under queued jobs."""
    for field in given:
        if field not in CHANGEABLE:
            if field in QueueOptions.__annotations__:
                reason = "is declared in code with ol.queue(…)"
                raise InvalidOption(option=field, reason=reason)
            raise unknown_option(field, sorted(CHANGEABLE), "Outlast.limit()")
    checked = dict(given)
    for field in ("rate", "lane_rate"):
        if field in checked:
            checked[field] = rate_per_second(field, checked[field])
    for field in ("quota", "lane_quota"):
        if field in checked:
            checked[field] = quota_text(field, checked[field])
    if "weights" in checked:
        checked["weights"] = _checked_weights(checked["weights"])
    return checked


def rate_per_second(field: str, value: Rate) -> float | None:
    """A rate in starts per second: "600/m", "5/s", "100/15m" or a number."""
    if value is None:
        return None
    if isinstance(value, str) and (match := _RATE_PATTERN.fullmatch(value.strip())):
        number, count, unit = match.groups()
        value = float(number) / (int(count or 1) * _UNIT_S[unit] or math.inf)
    if isinstance(value, str) or not is_finite(value) or not MIN_RATE <= value <= MAX_RATE:
        raise InvalidOption(
            option=field,
            reason=f'must be a rate such as "600/m" or "5/s" (s, m, h, d), not {value!r:.80}',
        )
    return float(value)


def refill_wait(rates: Iterable[float | None], burst: float | None) -> float | None:
    """Seconds for which buckets may be left alone without losing tokens to a full one; if one token
    fills a bucket, a tenth of the refill time. None: no rate."""
    waits = [
        max(0.1, (max(1.0, rate) if burst is None else burst) - 1.0) / rate
        for rate in rates
        if rate is not None
    ]
    return min(waits, default=None)


def seconds_of_pause(value: float | timedelta) -> float:
    """Validate how long `ctx.slow_down(…)` closes a lane, in seconds."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if not is_finite(seconds) or not 0 < seconds <= MAX_SLOW_DOWN_S:
        raise InvalidOption(
            option="seconds", reason=f"must be more than 0 and at most a day, not {value!r:.80}"
        )
    return float(seconds)


def _checked_weights(weights: object) -> dict[str, int] | None:
    if weights is None:
        return None
    if not isinstance(weights, Mapping) or len(weights) > MAX_WEIGHTS:
        raise InvalidOption(
            option="weights",
            reason=f"must map up to {MAX_WEIGHTS} lanes to whole numbers, not {weights!r:.80}",
        )
    for lane, weight in weights.items():
        if not isinstance(lane, str) or not 0 < len(lane) <= MAX_NAME_CHARS:
            raise InvalidOption(option="weights", reason=f"has an invalid lane name: {lane!r:.80}")
        _check_whole(f"weights[{lane!r}]", weight, 1, MAX_WEIGHT)
    return dict(weights)


def _check_whole(field: str, value: Any, low: int, high: int) -> None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if value is not None and not (whole and low <= value <= high):
        raise InvalidOption(
            option=field, reason=f"must be a whole number from {low} to {high}, not {value!r:.80}"
        )


_NO_LIMITS = QueueLimits("none")
