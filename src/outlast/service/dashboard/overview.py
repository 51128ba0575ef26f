"""The overview: is anything stuck, what is there, and how did the last half hour go."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from ...model.lifecycle import State
from ...model.spans import Spans, summed
from ...model.tokens import Scope
from ...ops.board import Board, Net, stuck
from ...ops.findings import Finding
from ...ops.statistics import SPAN, Line
from ..calls import Call
from ..route import Route
from .charts import Chart, Series, chart
from .live import HISTORY, Picture
from .pages import page, part, seen
from .streams import SSE, PartStream
from .words import duration

MINUTE = 60  # seconds: what "now" means for a rate
MOST_QUEUES = 5  # with a line of their own
LATE = 3  # periods of the audit after which its word is old


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether anything is stuck, and who says so."""

    findings: list[Finding]
    audit: Net | None
    audited_at: float | None
    current: bool  # the audit was done as often as it should be


async def overview_page(call: Call) -> Response:
    picture = await call.service.live.latest()
    return await page(call, "overview.html", **facts(call, picture))


async def live_overview(call: Call) -> Response:
    """The same, sent anew as long as somebody looks."""

    async def parts() -> AsyncIterator[str]:
        async for picture in call.service.live.pictures():
            yield await _made(call, picture)

    return PartStream(call, parts)


async def _made(call: Call, picture: Picture) -> str:
    """Once for all who see the same."""
    prefix = call.request.scope.get("root_path", "")
    key = ("overview", prefix, call.reach, call.who.tenant)
    if key not in picture.parts:
        picture.parts[key] = await part(call, "overview_part.html", **facts(call, picture))
    return picture.parts[key]


def facts(call: Call, picture: Picture) -> dict[str, Any]:
    board, lines = picture.of(call.reach)
    recent = lines_since(lines, board.at, MINUTE)
    return {
        "board": board,
        "counts": board.by_state,
        "verdict": verdict(board),
        "rate": rate(recent),
        "failing": sum(line.failed for line in recent),
        "wait": summed(line.waits for line in recent).percentile(0.95),
        "run": summed(line.runs for line in recent).percentile(0.95),
        "charts": charts(lines, board.at),
        "nothing": not board.depths and not any(line.weight for line in lines),
        "whole": call.who.tenant is None,
    }


def verdict(board: Board) -> Verdict:
    net = board.nets.get("audit")
    said = net is not None and net.silent_for is not None
    at = board.at - net.silent_for if net and net.silent_for is not None else None
    current = bool(said and net and (net.silent_for or 0.0) <= LATE * net.every)
    return Verdict(stuck(board), net, at, current)


def lines_since(lines: Sequence[Line], now: float, seconds: float) -> list[Line]:
    """Those of the last whole spans."""
    newest = max((line.at for line in lines), default=0)
    return [line for line in lines if line.at > newest - seconds and line.at > now - 3 * seconds]


def rate(lines: Sequence[Line]) -> float:
    """Jobs that ended in a second."""
    spans = len({line.at for line in lines})
    return sum(line.succeeded + line.dead for line in lines) / (spans * SPAN) if spans else 0.0


def charts(lines: Sequence[Line], now: float) -> list[Chart]:
    """Half an hour; what nobody counted is a gap."""
    end = max((line.at for line in lines), default=int(now) // SPAN * SPAN)
    places = range(end - HISTORY + SPAN, end + SPAN, SPAN)
    by_time: dict[int, list[Line]] = defaultdict(list)
    for line in lines:
        by_time[line.at].append(line)
    there = [by_time.get(at, []) for at in places]
    return [_throughput(there), _depth(there), _spans(there, "wait"), _spans(there, "run")]


def _throughput(there: list[list[Line]]) -> Chart:
    def per_second(name: str) -> list[float | None]:
        return [sum(getattr(one, name) for one in at) / SPAN if at else None for at in there]

    series = [
        Series("succeeded", 1, per_second("succeeded")),
        Series("failed attempts", 3, per_second("failed")),
        Series("dead", 5, per_second("dead")),
    ]
    return chart("throughput", "Throughput", "jobs per second", series)


def _spans(there: list[list[Line]], name: str) -> Chart:
    kept: list[Spans] = [
        summed(one.waits if name == "wait" else one.runs for one in at) for at in there
    ]
    series = [
        Series("median", 1, [one.percentile(0.5) for one in kept]),
        Series("p95", 2, [one.percentile(0.95) for one in kept]),
    ]
    title, about = {
        "wait": ("Wait", "from being due to being started"),
        "run": ("Run time", "of the last attempt"),
    }[name]
    return chart(name, title, about, series, duration)


def _depth(there: list[list[Line]]) -> Chart:
    """Ready jobs by queue: the deepest by themselves, the rest together."""
    weight: Counter[str] = Counter()
    for at in there:
        for line in at:
            weight[line.queue] += (line.depths or {}).get(State.READY, 0)
    named = [queue for queue, number in weight.most_common(MOST_QUEUES) if number and queue]
    rest = any(number for queue, number in weight.items() if queue not in named)
    series = [
        Series(queue, place, [_ready(at, {queue}, False) for at in there])
        for place, queue in enumerate(sorted(named), 1)
    ]
    if rest or not named:
        label = "all others" if named else "all queues"
        series.append(Series(label, 6, [_ready(at, set(named), True) for at in there]))
    return chart("depth", "Depth", "ready jobs by queue", series)


def _ready(at: list[Line], queues: set[str], but: bool) -> float | None:
    counted = [line for line in at if line.depths is not None]
    if not counted:
        return None
    chosen = (line for line in counted if (line.queue in queues) != but)
    return float(sum((line.depths or {}).get(State.READY, 0) for line in chosen))


ROUTES = (
    seen("/", overview_page, "Overview"),
    Route("GET", "/live/overview", Scope.READ, live_overview, "The overview, as it changes",
          media=(SSE,)),
)  # fmt: skip
