"""Ranges of charts, and statistics grouped into their steps: pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ...ops.access import Access
from ...ops.statistics import LONG_SPAN_S, OTHERS, SPAN_S, StatisticsRow, Whose


@dataclass(frozen=True, slots=True)
class Range:
    name: str
    seconds: int
    step: int  # seconds per point
    span: int  # seconds per stored row
    ticks: tuple[str, ...]


HOUR = Range("hour", 3600, 30, SPAN_S, ("−60 min", "−45", "−30", "−15", "now"))
DAY = Range("day", 86_400, LONG_SPAN_S, LONG_SPAN_S, ("−24 h", "−18", "−12", "−6", "now"))
WEEK = Range("week", 7 * 86_400, 3600, LONG_SPAN_S,
             ("−7 d", "−6", "−5", "−4", "−3", "−2", "−1", "now"))  # fmt: skip
RANGES = {one.name: one for one in (HOUR, DAY, WEEK)}


@dataclass(slots=True)
class RangeStep:
    """The counts of one step, of all tenants; `seconds` of it were counted."""

    seconds: int = 0
    lines: dict[Whose, StatisticsRow] = field(default_factory=dict)

    def add(self, line: StatisticsRow) -> None:
        self.lines.setdefault(line.key, StatisticsRow(line.at, *line.key)).follow(line)

    def of(self, reach: Access) -> list[StatisticsRow] | None:
        """One caller's counts. None: not counted, or possibly counted together with others."""
        if not self.seconds:
            return None
        found = [line for line in self.lines.values() if reach.allows(*line.key)]
        others = self.lines.get(OTHERS)
        return None if not found and others and others.weight else found


Steps = dict[int, RangeStep]  # by start time


def group_lines(lines: Iterable[StatisticsRow], over: Range) -> Steps:
    """Group lines by step."""
    steps: Steps = {}
    seen: set[int] = set()
    for line in lines:
        there = steps.setdefault(line.at // over.step * over.step, RangeStep())
        if line.at not in seen:
            seen.add(line.at)
            there.seconds += over.span
        there.add(line)
    return steps


def merge_steps(steps: Iterable[tuple[int, RangeStep]], length: int) -> Steps:
    """Merge steps into new, longer ones."""
    longer: Steps = {}
    for at, one in steps:
        there = longer.setdefault(at // length * length, RangeStep())
        there.seconds += one.seconds
        for line in one.lines.values():
            there.add(line)
    return longer


def steps_since(steps: Steps, moment: float) -> Steps:
    return {at: step for at, step in steps.items() if at >= moment}


def latest_steps(steps: Steps, now: float, seconds: int) -> Steps:
    """The most recently counted steps of `seconds`; none if they are too old."""
    newest = max(steps, default=0)
    return steps_since(steps, max(newest - seconds + HOUR.step, now - 3 * seconds))
