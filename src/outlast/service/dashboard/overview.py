"""The overview: problems, job counts, and charts of the last hour, day or week."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup
from starlette.responses import Response

from ...model.api_token import Scope
from ...model.histogram import merge_histograms
from ...ops.access import Access
from ...ops.doctor.findings import Finding
from ...ops.live_stats import DutyStatus, LiveStats, stuck_findings
from ...protocol import SSE
from ..api.request_models import RequestModel
from ..request import RequestContext
from ..route import Route
from .live_parts import PartStream
from .live_view import LiveSnapshot
from .pages import page_route, render_page, render_part
from .ranges import RANGES, Range, Steps, latest_steps
from .trends import trend_charts

RATE_WINDOW_S = 60  # window of current rates
STALE_PERIODS = 3  # audit periods after which its result is stale
MAX_FINDINGS = 20  # listed findings


class OverviewQuery(RequestModel):
    range: Literal["hour", "day", "week"] = "hour"


@dataclass(frozen=True, slots=True)
class StuckVerdict:
    """Whether anything is stuck, by the last audit."""

    findings: list[Finding]
    audit: DutyStatus | None
    audited_at: float | None
    current: bool  # the audit is not overdue


async def overview_page(call: RequestContext) -> Response:
    snapshot = await call.service.live_view.latest()
    shown = await _render(call, snapshot)
    chosen = call.query.range
    return await render_page(
        call, "overview.html", shown=shown, ranges=RANGES, chosen=chosen,
        age=snapshot.age if snapshot.is_stale else None,
    )  # fmt: skip


async def live_overview(call: RequestContext) -> Response:
    """The overview as a stream, sent again for every new snapshot."""

    async def parts() -> AsyncGenerator[str, None]:
        async for snapshot in call.service.live_view.snapshots():
            yield await _render(call, snapshot)

    return PartStream(call, parts, call.service.live_view.viewer())


async def _render(call: RequestContext, snapshot: LiveSnapshot) -> Markup:
    """The overview's HTML, rendered once for all users with the same access."""
    prefix = call.request.scope.get("root_path", "")
    key = ("overview", prefix, call.reach, call.who.tenant, call.query.range)
    if key not in snapshot.parts:
        over = RANGES[call.query.range]
        steps = await call.service.live_view.histories.steps_until(over, snapshot.board.at)
        values = overview_facts(call, snapshot, over, steps)
        snapshot.parts[key] = await render_part(call, "overview_part.html", **values)
    return snapshot.parts[key]


def overview_facts(
    call: RequestContext, snapshot: LiveSnapshot, over: Range, steps: Steps
) -> dict[str, object]:
    board = snapshot.board.of(call.reach)
    return {
        "board": board,
        "counts": board.by_state,
        "verdict": stuck_verdict(board),
        "most": MAX_FINDINGS,
        "paused": sorted(board.paused),
        "breakers": board.breakers,
        **current_rates(latest_steps(snapshot.hour, board.at, RATE_WINDOW_S), call.reach),
        "charts": trend_charts(steps, over, board.at, call.reach),
        "nothing": not board.depths
        and not any(line.weight for step in steps.values() for line in step.of(call.reach) or []),
        "whole": call.who.tenant is None,
    }


def current_rates(steps: Steps, reach: Access) -> dict[str, object]:
    """Current figures: jobs that end per second, and their wait and run times."""
    lines = [line for step in steps.values() for line in step.of(reach) or []]
    seconds = sum(step.seconds for step in steps.values())
    return {
        "rate": sum(line.succeeded + line.dead for line in lines) / seconds if seconds else 0.0,
        "wait": merge_histograms(line.waits for line in lines).percentile(0.95),
        "run": merge_histograms(line.runs for line in lines).percentile(0.95),
    }


def stuck_verdict(board: LiveStats) -> StuckVerdict:
    duty = board.duties.get("audit")
    is_known = duty is not None and duty.silent_for is not None
    at = board.at - duty.silent_for if duty and duty.silent_for is not None else None
    current = bool(is_known and duty and (duty.silent_for or 0.0) <= STALE_PERIODS * duty.every)
    return StuckVerdict(stuck_findings(board), duty, at, current)


ROUTES = (
    page_route("/", overview_page, "Overview", query=OverviewQuery),
    Route("GET", "/live/overview", Scope.READ, live_overview, "The overview as a stream",
          query=OverviewQuery, media=(SSE,)),
)  # fmt: skip
