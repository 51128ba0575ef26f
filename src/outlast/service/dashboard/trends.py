"""Charts over a range of time: throughput, depth, wait and run time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ...model.histogram import DurationHistogram, merge_histograms
from ...model.lifecycle import State
from ...ops.access import Access
from ...ops.statistics import StatisticsRow
from .charts import Chart, Series, chart
from .formatting import duration, plural
from .ranges import Range, RangeStep, Steps

MAX_QUEUE_LINES = 5  # further queues share one line


@dataclass(frozen=True, slots=True)
class TrendPoint:
    """One point of every line. `lines` is None without counts."""

    seconds: int
    lines: list[StatisticsRow] | None

    def per_second(self, name: str) -> float | None:
        if self.lines is None:
            return None
        return float(sum(getattr(line, name) for line in self.lines)) / self.seconds

    def spans(self, name: str) -> DurationHistogram:
        return merge_histograms(getattr(line, name) for line in self.lines or [])

    def ready(self, queues: set[str], but: bool = False) -> float | None:
        """Ready jobs in these queues, or in all but these."""
        counted = [line for line in self.lines or [] if line.depths is not None]
        if self.lines is None or (self.lines and not counted):
            return None
        chosen = (line for line in counted if (line.queue in queues) != but)
        return float(sum((line.depths or {}).get(State.READY, 0) for line in chosen))


def trend_charts(steps: Steps, over: Range, now: float, reach: Access) -> list[Chart]:
    """The charts; times without counts are gaps."""
    shown = trend_points(steps, over, now, reach)
    return [
        _throughput(shown, over),
        _depth(shown, over),
        _spans(shown, over, "waits", "Wait", "from being due to being started"),
        _spans(shown, over, "runs", "Run time", "of the last attempt"),
    ]


def trend_points(steps: Steps, over: Range, now: float, reach: Access) -> list[TrendPoint]:
    end = int(now) // over.step * over.step
    places = range(end - over.seconds + over.step, end + over.step, over.step)
    there = [steps.get(at, RangeStep()) for at in places]
    return [TrendPoint(step.seconds, step.of(reach)) for step in there]


def _throughput(shown: list[TrendPoint], over: Range) -> Chart:
    ended = sum(line.succeeded + line.dead for one in shown for line in one.lines or [])
    series = [
        Series(label, colour, [one.per_second(name) for one in shown], is_filled=colour == 1)
        for label, colour, name in (
            ("succeeded", 1, "succeeded"), ("failed attempts", 3, "failed"), ("dead", 5, "dead"),
        )
    ]  # fmt: skip
    return chart("throughput", "Throughput", f"per second; {plural(ended, 'job')}", series, over)


def _spans(shown: list[TrendPoint], over: Range, name: str, title: str, about: str) -> Chart:
    histograms = [one.spans(name) for one in shown]
    series = [
        Series("median", 1, [one.percentile(0.5) for one in histograms]),
        Series("p95", 2, [one.percentile(0.95) for one in histograms]),
    ]
    return chart(name, title, about, series, over, duration)


def _depth(shown: list[TrendPoint], over: Range) -> Chart:
    """Ready jobs by queue: the deepest queues separately, the others together."""
    weight: Counter[str] = Counter()
    for one in shown:
        for line in one.lines or []:
            weight[line.queue] += (line.depths or {}).get(State.READY, 0)
    named = [queue for queue, ready in weight.most_common(MAX_QUEUE_LINES) if ready and queue]
    rest = any(ready for queue, ready in weight.items() if queue not in named)
    series = [
        Series(queue, colour, [one.ready({queue}) for one in shown])
        for colour, queue in enumerate(sorted(named), 1)
    ]
    if rest or not named:
        label = "all others" if named else "all queues"
        series.append(Series(label, 6, [one.ready(set(named), but=True) for one in shown]))
    return chart("depth", "Depth", "ready jobs by queue", series, over)
