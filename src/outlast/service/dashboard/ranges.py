"""How far back charts go, and what was counted gathered into the steps that they show: pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ...ops.reach import Reach
from ...ops.statistics import LONG_SPAN, OTHERS, SPAN, Line, Whose


@dataclass(frozen=True, slots=True)
class Range:
    name: str
    seconds: int
    step: int  # seconds that one point of a line stands for
    span: int  # seconds of what it is made of
    ticks: tuple[str, ...]


HOUR = Range("hour", 3600, 30, SPAN, ("−60 min", "−45", "−30", "−15", "now"))
DAY = Range("day", 86_400, LONG_SPAN, LONG_SPAN, ("−24 h", "−18", "−12", "−6", "now"))
WEEK = Range("week", 7 * 86_400, 3600, LONG_SPAN,
             ("−7 d", "−6", "−5", "−4", "−3", "−2", "−1", "now"))  # fmt: skip
RANGES = {one.name: one for one in (HOUR, DAY, WEEK)}


@dataclass(slots=True)
class Step:
    """What was counted of so many seconds of it, of everybody."""

    seconds: int = 0
    lines: dict[Whose, Line] = field(default_factory=dict)

    def take(self, line: Line) -> None:
        self.lines.setdefault(line.whose, Line(line.at, *line.whose)).follow(line)

    def of(self, reach: Reach) -> list[Line] | None:
        """One caller's part. None: nobody counted; or it may be among what is counted together."""
        if not self.seconds:
            return None
        found = [line for line in self.lines.values() if reach.has(*line.whose)]
        others = self.lines.get(OTHERS)
        return None if not found and others and others.weight else found


Steps = dict[int, Step]  # by when they begin


def gathered(lines: Iterable[Line], over: Range) -> Steps:
    """Lines by the step that they belong to."""
    made: Steps = {}
    seen: set[int] = set()
    for line in lines:
        there = made.setdefault(line.at // over.step * over.step, Step())
        if line.at not in seen:
            seen.add(line.at)
            there.seconds += over.span
        there.take(line)
    return made


def merged(steps: Iterable[tuple[int, Step]], length: int) -> Steps:
    """Steps in longer ones, which are new."""
    made: Steps = {}
    for at, one in steps:
        there = made.setdefault(at // length * length, Step())
        there.seconds += one.seconds
        for line in one.lines.values():
            there.take(line)
    return made


def since(steps: Steps, moment: float) -> Steps:
    return {at: step for at, step in steps.items() if at >= moment}


def latest(steps: Steps, now: float, seconds: int) -> Steps:
    """The last that were counted, of so much time; none, if that was long ago."""
    newest = max(steps, default=0)
    return since(steps, max(newest - seconds + HOUR.step, now - 3 * seconds))
