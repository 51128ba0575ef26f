"""Line charts as SVG paths, which a template renders: pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .formatting import number
from .ranges import Range

WIDTH, HEIGHT = 600, 140  # scaled to the screen; labels are HTML
GRID_LINES = 3

Points = Sequence[float | None]  # None: not counted


@dataclass(frozen=True, slots=True)
class Series:
    name: str
    colour: int  # 1 to 6: a class of the style
    points: Points
    is_filled: bool = False  # down to the axis

    @property
    def last(self) -> float | None:
        return next((point for point in reversed(self.points) if point is not None), None)


@dataclass(frozen=True, slots=True)
class GridLine:
    y: float
    label: str


@dataclass(frozen=True, slots=True)
class DrawnSeries:
    series: Series
    line: str  # the path
    area: str
    last: str  # formatted


@dataclass(frozen=True, slots=True)
class Chart:
    name: str
    title: str
    about: str
    drawn: list[DrawnSeries]
    rules: list[GridLine]
    over: Range
    empty: bool
    top: float  # value of the highest grid line
    unit: str  # how the script formats a value

    @property
    def words(self) -> str:
        """The chart as text, for screen readers."""
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
    format_value: Callable[[float | None], str] = number,
) -> Chart:
    points = [p for one in series for p in one.points if p is not None]
    top = ceiling(max(points, default=0.0))
    drawn = [
        DrawnSeries(
            one,
            path(one.points, top),
            area(one.points, top) if one.is_filled else "",
            _value_text(format_value, one.last),
        )
        for one in series
    ]
    rules = [
        GridLine(
            _y(top * step / GRID_LINES, top), _value_text(format_value, top * step / GRID_LINES)
        )
        for step in range(GRID_LINES + 1)
    ]
    unit = "number" if format_value is number else "seconds"
    return Chart(name, title, about, drawn, rules, over, not any(points), top, unit)


def _value_text(format_value: Callable[[float | None], str], value: float | None) -> str:
    """A value as plain text: it is used in an attribute, too."""
    return "–" if value is None else format_value(value)


def ceiling(value: float) -> float:
    """The next round number that three grid lines divide evenly."""
    if value <= 0:
        return 3.0
    size = 10.0 ** _magnitude(value)
    return next(
        size * step for step in (0.3, 0.6, 1.2, 1.5, 3.0, 6.0, 12.0) if size * step >= value
    )


def path(points: Points, top: float) -> str:
    """An SVG path with gaps where there are no values. A single value is a line of length 0, which
    round line caps show as a dot."""
    parts, down = [], False
    for index, point in enumerate(points):
        if point is None:
            down = False
            continue
        parts.append(f"{'L' if down else 'M'}{_x(index, len(points)):.1f} {_y(point, top):.1f}")
        if not down and (index + 1 == len(points) or points[index + 1] is None):
            parts.append("h0")
        down = True
    return "".join(parts)


def area(points: Points, top: float) -> str:
    """An SVG path of the area between the line and the axis."""
    made, floor = "", _y(0.0, top)
    for first, last in _runs(points):
        inside = path([None] * first + list(points[first : last + 1]) + [None] * (
            len(points) - last - 1), top)  # fmt: skip
        low, high = _x(first, len(points)), _x(last, len(points))
        made += f"{inside}L{high:.1f} {floor:.1f}L{low:.1f} {floor:.1f}Z"
    return made


def _runs(points: Points) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for index, point in enumerate(points):
        if point is None:
            continue
        if found and found[-1][1] == index - 1:
            found[-1] = (found[-1][0], index)
        else:
            found.append((index, index))
    return found


def _x(index: int, number: int) -> float:
    return WIDTH * index / max(1, number - 1)


def _y(value: float, top: float) -> float:
    return HEIGHT * (1 - min(1.0, value / top))


def _magnitude(value: float) -> int:
    index = 0
    while value >= 10.0 ** (index + 1):
        index += 1
    while value < 10.0**index:
        index -= 1
    return index
