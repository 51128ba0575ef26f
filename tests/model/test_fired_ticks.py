"""Which ticks were dealt with: none comes twice, and none is waited for in vain."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import pytest

from outlast.model.fired_ticks import MAX_SPANS, FiredTicks
from outlast.model.firing import decide_firing
from outlast.model.schedule import ScheduleSpec

HOUR, YEAR = 3600.0, 365 * 86400.0
START = 1_790_000_000.0


def test_a_gap_is_free_and_spans_are_not() -> None:
    """R237"""
    fired = FiredTicks().adding([60.0, 120.0], 0).adding([180.0], 0).adding([600.0], 6)
    assert fired.spans == ((60.0, 180.0), (600.0, 600.0))
    spec = ScheduleSpec.of({"every": 60})
    assert fired.first_free(spec, 0.0) == 240.0
    assert fired.first_free(spec, 540.0) == 660.0
    for one in (fired, fired.interrupted(), FiredTicks()):
        assert FiredTicks.read(one.text()) == one
    assert FiredTicks.read("{damaged") == FiredTicks.read('[["x", 1]]') == FiredTicks()


def test_spans_are_few_and_no_tick_is_forgotten() -> None:
    """R237: two spans that become one take the gap between them along."""
    fired = FiredTicks()
    ticks = [float(n * HOUR) for n in range(0, 200, 5)]
    for tick in ticks:
        fired = fired.adding([tick], missed=4)
    assert len(fired.spans) == MAX_SPANS
    assert all(fired.has(tick) for tick in ticks)


@dataclass
class Simulated:
    """A schedule whose database's clock steps, as workers fire and rewind it."""

    spec: ScheduleSpec
    now: float = START
    fired: FiredTicks = field(default_factory=FiredTicks)
    jobs: list[float] = field(default_factory=list)
    next_at: float | None = None

    def step(self, seconds: float) -> None:
        self.now += seconds
        if seconds < 0:
            tick = self.fired.first_free(self.spec, max(self.now, START))
            if tick is not None and (self.next_at is None or tick < self.next_at):
                self.next_at, self.fired = tick, self.fired.interrupted()
        if self.next_at is not None and self.next_at <= self.now:
            firing = decide_firing(self.spec, self.next_at, self.now, (), self.fired)
            self.fired = self.fired.adding(firing.ticks, firing.missed)
            self.next_at, self.jobs = firing.following, [*self.jobs, *(t for t, _ in firing.jobs)]


@pytest.mark.parametrize("missed", ["once", "none", "all"])
@pytest.mark.parametrize("options", [{"every": 1.1}, {"cron": "*/7 * * * *", "tz": "Asia/Tokyo"}])
def test_no_tick_fires_twice_and_none_is_waited_for_in_vain(
    options: dict[str, object], missed: str
) -> None:
    """R237: a clock that steps back and forth by seconds, hours and years."""
    draw = random.Random(f"{options}{missed}")
    spec = ScheduleSpec.of({**options, "missed": missed, "overlap": "allow"})
    for _ in range(30):
        one = Simulated(spec, next_at=spec.next_tick(START))
        for _ in range(40):
            size = draw.choice([1.0, 60.0, HOUR, 30 * HOUR, YEAR])
            one.step(draw.uniform(-size, size))
        assert len(one.jobs) == len(set(one.jobs))
        one.step(START + 20 * YEAR - one.now)  # a long way ahead, and then right again
        one.step(START + HOUR - one.now)
        assert one.next_at == one.fired.first_free(spec, one.now) or one.next_at <= one.now


@pytest.mark.parametrize("stride", [HOUR, 3 * HOUR])
def test_ticks_that_fired_ahead_of_their_time_are_passed_over_when_it_comes(stride: float) -> None:
    """R237: one at a time, and several at once after an outage."""
    spec = ScheduleSpec.of({"every": HOUR, "missed": "all", "overlap": "allow"})
    one = Simulated(replace(spec, missed="once"), next_at=spec.next_tick(START))
    one.step(HOUR)
    one.step(8 * HOUR)  # ahead: the latest tick of these fires
    one.step(-8 * HOUR)
    one.spec = spec
    for _ in range(9):
        one.step(stride)
    assert len(one.jobs) == len(set(one.jobs))
    first = one.jobs[0]
    assert sorted(one.jobs) == [first + n * HOUR for n in range(len(one.jobs))]
