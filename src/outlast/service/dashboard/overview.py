"""The overview: is anything stuck, what is there, and how did the last hour, day or week go."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Literal

from markupsafe import Markup
from starlette.responses import Response

from ...model.spans import summed
from ...model.tokens import Scope
from ...ops.board import Board, Net, stuck
from ...ops.findings import Finding
from ...ops.reach import Reach
from ..api.asked import Incoming
from ..calls import Call
from ..route import Route
from .live import Picture
from .pages import page, part, seen
from .ranges import RANGES, Range, Steps, latest
from .streams import SSE, PartStream
from .trends import trends

MINUTE = 60  # seconds: what "now" means for a rate
LATE = 3  # periods of the audit after which its word is old
MOST_FINDINGS = 20  # that are told one by one


class OverviewQuery(Incoming):
    range: Literal["hour", "day", "week"] = "hour"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether anything is stuck, and who says so."""

    findings: list[Finding]
    audit: Net | None
    audited_at: float | None
    current: bool  # the audit was done as often as it should be


async def overview_page(call: Call) -> Response:
    picture = await call.service.live.latest()
    shown = await _made(call, picture)
    chosen = call.query.range
    return await page(
        call, "overview.html", shown=shown, ranges=RANGES, chosen=chosen,
        age=picture.age if picture.is_old else None,
    )  # fmt: skip


async def live_overview(call: Call) -> Response:
    """The same, sent anew as long as somebody looks."""

    async def parts() -> AsyncIterator[str]:
        async for picture in call.service.live.pictures():
            yield await _made(call, picture)

    return PartStream(call, parts)


async def _made(call: Call, picture: Picture) -> Markup:
    """Once for all who see the same."""
    prefix = call.request.scope.get("root_path", "")
    key = ("overview", prefix, call.reach, call.who.tenant, call.query.range)
    if key not in picture.parts:
        over = RANGES[call.query.range]
        steps = await call.service.live.histories.upto(over, picture.board.at)
        told = facts(call, picture, over, steps)
        picture.parts[key] = await part(call, "overview_part.html", **told)
    return picture.parts[key]


def facts(call: Call, picture: Picture, over: Range, steps: Steps) -> dict[str, Any]:
    board = picture.board.of(call.reach)
    return {
        "board": board,
        "counts": board.by_state,
        "verdict": verdict(board),
        "most": MOST_FINDINGS,
        "paused": sorted(board.paused),
        "breakers": board.breakers,
        **pace(latest(picture.hour, board.at, MINUTE), call.reach),
        "charts": trends(steps, over, board.at, call.reach),
        "nothing": not board.depths
        and not any(line.weight for step in steps.values() for line in step.of(call.reach) or []),
        "whole": call.who.tenant is None,
    }


def pace(steps: Steps, reach: Reach) -> dict[str, Any]:
    """How it goes now: jobs that end in a second, and how long they waited and ran."""
    lines = [line for step in steps.values() for line in step.of(reach) or []]
    seconds = sum(step.seconds for step in steps.values())
    return {
        "rate": sum(line.succeeded + line.dead for line in lines) / seconds if seconds else 0.0,
        "wait": summed(line.waits for line in lines).percentile(0.95),
        "run": summed(line.runs for line in lines).percentile(0.95),
    }


def verdict(board: Board) -> Verdict:
    net = board.nets.get("audit")
    said = net is not None and net.silent_for is not None
    at = board.at - net.silent_for if net and net.silent_for is not None else None
    current = bool(said and net and (net.silent_for or 0.0) <= LATE * net.every)
    return Verdict(stuck(board), net, at, current)


ROUTES = (
    seen("/", overview_page, "Overview", query=OverviewQuery),
    Route("GET", "/live/overview", Scope.READ, live_overview, "The overview, as it changes",
          query=OverviewQuery, media=(SSE,)),
)  # fmt: skip
