"""Lines over time, as SVG that a template draws: pure, from numbers to paths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .ranges import Range
from .words import number

WIDTH, HEIGHT = 600, 140  # whatever the size on a screen: what is written stands beside
RULES = 3

Points = Sequence[float | None]  # None: nobody counted then


@dataclass(frozen=True, slots=True)
class Series:
    name: str
    colour: int  # 1 to 6: a class of the style
    points: Points
    filled: bool = False  # down to the ground

    @property
    def last(self) -> float | None:
        return next((point for point in reversed(self.points) if point is not None), None)


@dataclass(frozen=True, slots=True)
class Rule:
    y: float
    label: str


@dataclass(frozen=True, slots=True)
class Drawn:
    series: Series
    line: str  # the path
    area: str
    last: str  # in words


@dataclass(frozen=True, slots=True)
class Chart:
    name: str
    title: str
    about: str
    drawn: list[Drawn]
    rules: list[Rule]
    over: Range
    empty: bool
    top: float  # what the highest rule stands for
    unit: str  # how a script says a value

    @property
    def words(self) -> str:
        """The same for those who do not see it."""
        latest = ", ".join(f"{one.series.name} {one.last}" for one in self.drawn)
        return f"{self.title}, the last {self.over.name}; latest: {latest}"

    @property
    def points(self) -> int:
        return self.over.seconds // self.over.step


def chart(
    name: str,
    title: str,
    about: str,
    series: Sequence[Series],
    over: Range,
    said: Callable[[float | None], str] = number,
) -> Chart:
    points = [p for one in series for p in one.points if p is not None]
    top = ceiling(max(points, default=0.0))
    drawn = [
        Drawn(
            one,
            path(one.points, top),
            area(one.points, top) if one.filled else "",
            _words(said, one.last),
        )
        for one in series
    ]
    rules = [
        Rule(_y(top * step / RULES, top), _words(said, top * step / RULES))
        for step in range(RULES + 1)
    ]
    unit = "number" if said is number else "seconds"
    return Chart(name, title, about, drawn, rules, over, not any(points), top, unit)


def _words(said: Callable[[float | None], str], value: float | None) -> str:
    """Plain: it stands in an attribute too."""
    return "–" if value is None else said(value)


def ceiling(value: float) -> float:
    """The next round number that three rules divide well."""
    if value <= 0:
        return 3.0
    size = 10.0 ** _magnitude(value)
    return next(
        size * step for step in (0.3, 0.6, 1.2, 1.5, 3.0, 6.0, 12.0) if size * step >= value
    )


def path(points: Points, top: float) -> str:
    """Lines where there are numbers, and nothing where there are none."""
    parts, down = [], False
    for place, point in enumerate(points):
        if point is None:
            down = False
            continue
        parts.append(f"{'L' if down else 'M'}{_x(place, len(points)):.1f} {_y(point, top):.1f}")
        down = True
    return "".join(parts)


def area(points: Points, top: float) -> str:
    """The same, closed down to the ground."""
    made, floor = "", _y(0.0, top)
    for first, last in _stretches(points):
        inside = path([None] * first + list(points[first : last + 1]) + [None] * (
            len(points) - last - 1), top)  # fmt: skip
        low, high = _x(first, len(points)), _x(last, len(points))
        made += f"{inside}L{high:.1f} {floor:.1f}L{low:.1f} {floor:.1f}Z"
    return made


def _stretches(points: Points) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for place, point in enumerate(points):
        if point is None:
            continue
        if found and found[-1][1] == place - 1:
            found[-1] = (found[-1][0], place)
        else:
            found.append((place, place))
    return found


def _x(place: int, number: int) -> float:
    return WIDTH * place / max(1, number - 1)


def _y(value: float, top: float) -> float:
    return HEIGHT * (1 - min(1.0, value / top))


def _magnitude(value: float) -> int:
    place = 0
    while value >= 10.0 ** (place + 1):
        place += 1
    while value < 10.0**place:
        place -= 1
    return place
