"""When schedules are due: options, ticks, days on which clocks change, and the policies."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from outlast import InvalidOption
from outlast.model.firing import MAX_COUNTED_TICKS, Run, decide_firing, due_ticks
from outlast.model.schedule import ScheduleSpec, manual_key, tick_key, tick_of_key

DAY = 86400
# Each zone's days around both changes of its clocks in 2026.
CHANGES = {
    "Europe/Berlin": ("2026-03-29", "2026-10-25"),
    "America/New_York": ("2026-03-08", "2026-11-01"),
    "Australia/Lord_Howe": ("2026-04-05", "2026-10-04"),
    "Pacific/Chatham": ("2026-04-05", "2026-09-27"),
    "Africa/Cairo": ("2026-04-24", "2026-10-30"),  # at midnight
    "UTC": ("2026-03-29", "2026-10-25"),
}


def between(spec: ScheduleSpec, start: float, end: float) -> list[float]:
    found = []
    for tick in spec.ticks(start):
        if tick >= end:
            break
        found.append(tick)
    return found


@pytest.mark.parametrize("tz", CHANGES)
@pytest.mark.parametrize(
    "cron", ["30 2 * * *", "15 2 * * *", "0 3 * * *", "45 2 * * *", "0 0 * * *"]
)
def test_a_daily_schedule_has_one_tick_on_every_day(tz: str, cron: str) -> None:
    """R156: on the days on which clocks change, too."""
    spec = ScheduleSpec.of({"cron": cron, "tz": tz})
    start = datetime(2025, 12, 31, 23, 59, tzinfo=ZoneInfo(tz)).timestamp()
    end = datetime(2026, 12, 31, 23, 59, 59, tzinfo=ZoneInfo(tz)).timestamp()
    ticks = between(spec, start, end)
    days = Counter(datetime.fromtimestamp(tick, ZoneInfo(tz)).date() for tick in ticks)
    assert days == {date(2026, 1, 1) + timedelta(days=n): 1 for n in range(365)}
    assert all(20 * 3600 < after - before < 28 * 3600 for before, after in pairwise(ticks))


@pytest.mark.parametrize("tz", CHANGES)
def test_a_schedule_of_every_quarter_keeps_its_distance(tz: str) -> None:
    """R156: by the moments that pass, not by the times that clocks skip or show twice."""
    spec = ScheduleSpec.of({"cron": "*/15 * * * *", "tz": tz})
    for day in CHANGES[tz]:
        start = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(tz)).timestamp() - DAY
        ticks = between(spec, start, start + 3 * DAY)
        assert {after - before for before, after in pairwise(ticks)} == {900.0}


# A second implementation: it looks at every minute.

Field = tuple[str, set[int]]


def random_field(pick: random.Random, low: int, high: int, star: float) -> Field:
    numbers = list(range(low, high + 1))
    kind = pick.random()
    if kind < star:
        return "*", set(numbers)
    if kind < star + 0.15:
        step = pick.randint(2, max(2, (high - low) // 2))
        return f"*/{step}", set(numbers[::step])
    if kind < star + 0.3:
        first, last = sorted(pick.choices(numbers, k=2))
        return f"{first}-{last}", set(range(first, last + 1))
    chosen = sorted(set(pick.choices(numbers, k=pick.randint(1, 3))))
    return ",".join(map(str, chosen)), set(chosen)


def day_matches(day: datetime, fields: list[Field]) -> bool:
    of_month, months, of_week = fields[2], fields[3], fields[4]
    dom = day.day in of_month[1]
    dow = (day.weekday() + 1) % 7 in {number % 7 for number in of_week[1]}
    both = of_month[0].startswith("*") or of_week[0].startswith("*")
    return day.month in months[1] and ((dom and dow) if both else (dom or dow))


def shows(wall: datetime, fields: list[Field]) -> bool:
    return wall.minute in fields[0][1] and wall.hour in fields[1][1] and day_matches(wall, fields)


def every_minute(fields: list[Field], tz: ZoneInfo, start: float, end: float) -> list[float]:
    """All ticks of a span, by looking at each minute of it."""
    if fields[0][0].startswith("*") or fields[1][0].startswith("*"):
        minutes = range(int(start) // 60 * 60, int(end), 60)
        found = [m for m in minutes if shows(datetime.fromtimestamp(m, tz), fields)]
    else:
        found = list(fixed_times(fields, tz, start, end))
    return sorted({float(tick) for tick in found if start < tick < end})


def fixed_times(fields: list[Field], tz: ZoneInfo, start: float, end: float) -> Iterator[float]:
    wall = datetime.fromtimestamp(start - DAY, tz).replace(tzinfo=None, second=0, microsecond=0)
    last = datetime.fromtimestamp(end + DAY, tz).replace(tzinfo=None)
    while wall < last:
        if shows(wall, fields):
            shown = wall
            while not exists(shown, tz):
                shown += timedelta(minutes=1)
            yield shown.replace(tzinfo=tz).timestamp()
        wall += timedelta(minutes=1)


def exists(wall: datetime, tz: ZoneInfo) -> bool:
    moment = wall.replace(tzinfo=tz).timestamp()
    return datetime.fromtimestamp(moment, tz).replace(tzinfo=None) == wall


def check_random_expressions(number: int, seed: int) -> None:
    pick = random.Random(seed)
    for _ in range(number):
        fields = [
            random_field(pick, 0, 59, 0.2), random_field(pick, 0, 23, 0.3),
            random_field(pick, 1, 31, 0.6), random_field(pick, 1, 12, 0.7),
            random_field(pick, 0, 7, 0.6),
        ]  # fmt: skip
        cron, name = " ".join(text for text, _ in fields), pick.choice(list(CHANGES))
        tz = ZoneInfo(name)
        day = datetime.fromisoformat(pick.choice(CHANGES[name])).replace(tzinfo=tz)
        start = day.timestamp() - DAY + pick.randint(0, DAY)
        end = start + 2 * DAY
        try:
            spec = ScheduleSpec.of({"cron": cron, "tz": name})
        except InvalidOption:  # a day that no month has
            assert every_minute(fields, tz, start, end) == [], cron
            continue
        assert between(spec, start, end) == every_minute(fields, tz, start, end), (cron, name)


def test_ticks_are_those_of_a_second_implementation() -> None:
    """R156: around the changes of clocks."""
    check_random_expressions(150, seed=7)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(10, 20))
def test_ten_thousand_expressions_have_the_ticks_of_a_second_implementation(seed: int) -> None:
    """R156"""
    check_random_expressions(1000, seed)


def test_nicknames_and_spans_are_understood() -> None:
    assert ScheduleSpec.of({"cron": "@daily"}).cron == "0 0 * * *"
    assert ScheduleSpec.of({"cron": " 30  2 * *  mon-fri"}).cron == "30 2 * * mon-fri"
    for every in ("15m", 900, 900.0, timedelta(minutes=15)):
        spec = ScheduleSpec.of({"every": every})
        assert (spec.every, spec.overlap, spec.next_tick(0.0)) == (900.0, "skip", 900.0)
    assert ScheduleSpec.of({"cron": "@hourly"}).overlap == "allow"
    spec = ScheduleSpec.of({"cron": "@hourly", "tz": "Asia/Tokyo"}).changed({"every": "1h"})
    assert (spec.cron, spec.every, spec.tz) == (None, 3600.0, "UTC")


@pytest.mark.parametrize(
    "options",
    [
        {}, {"cron": "* * * * *", "every": 60}, {"cron": "61 * * * *"}, {"cron": "* * * *"},
        {"cron": ""}, {"cron": 5}, {"cron": "0 0 30 2 *"}, {"cron": "0 0 5#1/2 * 1L/3"},
        {"cron": "@fortnightly"}, {"cron": "x" * 5000}, {"every": 0}, {"every": "soon"},
        {"every": -5}, {"every": 1e12}, {"every": float("nan")}, {"every": True},
        {"cron": "@daily", "tz": "Europe/Atlantis"}, {"cron": "@daily", "tz": "../etc/passwd"},
        {"cron": "@daily", "tz": "America"}, {"cron": "@daily", "tz": 3},
        {"cron": "@daily", "missed": "maybe"}, {"cron": "@daily", "overlap": "yes"},
        {"cron": "@daily", "jitter": -1}, {"cron": "@daily", "jitter": 90_000},
        {"cron": "@daily", "grace": "long"}, {"every": 60, "tz": "Europe/Berlin"},
        {"cron": "@daily", "colour": "red"},
    ],
)  # fmt: skip
def test_a_schedule_that_cannot_be_is_refused_with_the_option(options: dict[str, object]) -> None:
    """R155"""
    with pytest.raises(InvalidOption):
        ScheduleSpec.of(options)


def test_jitter_is_the_same_for_a_tick_and_spreads_schedules() -> None:
    spec = ScheduleSpec.of({"cron": "@hourly", "jitter": 30})
    delays = [spec.delay(f"s{n}", 3600.0) for n in range(200)]
    assert delays == [spec.delay(f"s{n}", 3600.0) for n in range(200)]
    assert all(0 <= delay < 30 for delay in delays)
    assert len(set(delays)) > 150
    assert spec.delay("s1", 3600.0) != spec.delay("s1", 7200.0)


def test_a_gap_of_years_is_jumped_over_not_walked() -> None:
    """R236"""
    now = datetime(2026, 6, 1, 12, 0, 30, tzinfo=UTC).timestamp()
    for cron, latest in (("* * * * *", now - 30), ("0 0 29 2 *", 1709164800.0)):
        spec = ScheduleSpec.of({"cron": cron})
        began = time.process_time()
        due = due_ticks(spec, spec.next_tick(0.0) or 0.0, now)
        assert time.process_time() - began < 1
        assert due.ticks == (latest,)
        assert due.following is not None and due.following > now
        assert due.missed <= MAX_COUNTED_TICKS


def test_overlaps_within_one_pass_count_too() -> None:
    """R235: several missed ticks are each other's earlier runs."""
    now, going = 10_000.0, Run("a", True, "03:00")
    for overlap, active, jobs, skipped in (
        ("allow", [going], 3, 0), ("skip", [], 1, 2), ("skip", [going], 0, 3),
        ("queue", [], 1, 2), ("queue", [going], 1, 2), ("cancel", [going], 1, 2),
    ):  # fmt: skip
        spec = ScheduleSpec.of({"every": 1000, "missed": "all", "overlap": overlap})
        firing = decide_firing(spec, 8000.0, now, active)
        assert (len(firing.jobs), firing.skipped) == (jobs, skipped), overlap
        assert firing.following == 11_000.0
    assert decide_firing(
        ScheduleSpec.of({"every": 1000}), 10_000.0, now, [going]
    ).note == "skipped: the run of 03:00 is still going"  # fmt: skip


def test_a_key_tells_its_tick() -> None:
    moment = datetime(2026, 3, 1, 2, 30, tzinfo=UTC)
    assert tick_key("a:b", moment.timestamp()) == "cron:a:b:2026-03-01T02:30:00Z"
    for key in (tick_key("a:b", moment.timestamp()), manual_key("x", moment.timestamp())):
        assert tick_of_key(key) == moment
    assert [tick_of_key(key) for key in (None, "doc-7", "cron:x", "cron:x:2026")] == [None] * 4


@pytest.mark.parametrize("every", [1.1, 1.3, 4 / 3, 7.7, 60.1, 86400.000001])
def test_a_period_with_a_fraction_never_stands_still(every: float) -> None:
    """R153: a database keeps microseconds, and the tick after a stored one is another."""
    spec = ScheduleSpec.of({"every": every})
    tick = 1_790_000_000.0
    for _ in range(2000):
        following = spec.next_tick(tick)
        assert following is not None
        stored = round(following, 6)
        assert tick_key("x", stored) != tick_key("x", tick)
        assert 0 < stored - tick < every + 0.00001
        assert spec.latest_tick(0.0, stored) == stored == following
        tick = stored


def test_the_latest_tick_of_a_gap_is_not_walked_to() -> None:
    """R236: a month of minutes or seconds, half a year ago."""
    until = datetime(2026, 11, 17, tzinfo=UTC).timestamp()
    for cron, wanted in (
        ("* * * 2 *", datetime(2026, 2, 28, 23, 59, tzinfo=UTC)),
        ("* * * * 2 *", datetime(2026, 2, 28, 23, 59, 59, tzinfo=UTC)),
        ("0 0 29 2 *", datetime(2024, 2, 29, tzinfo=UTC)),
    ):
        spec = ScheduleSpec.of({"cron": cron})
        began = time.monotonic()
        assert spec.latest_tick(0.0, until) == wanted.timestamp()
        assert spec.latest_tick(wanted.timestamp(), until) == wanted.timestamp()
        assert spec.latest_tick(wanted.timestamp() + 1, until) is None
        assert time.monotonic() - began < 5, "halving takes a few milliseconds"
