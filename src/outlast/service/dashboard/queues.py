"""The page of queues: job counts, drain rates and settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from pydantic import Field
from starlette.responses import Response

from ...model.lane import QueueLimits
from ...model.lifecycle import State
from ...ops.access import Access
from ...ops.statistics import StatisticsRow
from ..api.queues import list_lanes, list_queues
from ..api.request_models import LanesQuery, RequestModel
from ..request import RequestContext
from . import queue_actions
from .filters import FilterText
from .pages import page_route, render_page
from .ranges import Steps, latest_steps

RATE_WINDOW_S = 300  # window of rates
PAGE_SIZE = 100


class QueuesQuery(RequestModel):
    text: FilterText = ""  # contained in the name
    sort: Literal["name", "ready", "running", "scheduled", "waiting", "dead", "oldest"] = "name"
    page: int = Field(1, ge=1, le=100_000)


class DrainRate(NamedTuple):
    rate: float  # jobs that end per second
    seconds: float | None  # until empty, if no jobs are added; None: unknown
    grows: bool  # more jobs are added than end


async def queues_page(call: RequestContext) -> Response:
    params: QueuesQuery = call.query
    listed = await list_queues(call)
    snapshot = await call.service.live_view.latest()
    found = [queue for queue in listed["queues"] if params.text.strip() in queue["name"]]
    found.sort(key=lambda queue: _sort_key(queue, params.sort))
    first = (params.page - 1) * PAGE_SIZE
    shown = found[first : first + PAGE_SIZE]
    recent = latest_steps(snapshot.hour, snapshot.board.at, RATE_WINDOW_S)
    workers = await call.ol.aworkers()
    for queue in shown:
        queue["served"] = any(one.alive and one.serves(queue["name"]) for one in workers)
        limits = QueueLimits(queue["name"]).with_overrides(queue["limits"])
        queue["limits_in_words"] = limits.in_words(running=queue["counts"]["running"])
    return await render_page(
        call,
        "queues.html",
        asked=params,
        queues=shown,
        first=first,
        number=len(found),
        known=len(listed["queues"]),
        age=listed["age"],
        drains=drain_rates(recent, call.reach, shown),
        query={name: value for name, value in params if name != "page" and value},
    )


async def lanes_page(call: RequestContext) -> Response:
    listed = await list_lanes(call)
    return await render_page(call, "lanes.html", **listed)


def _sort_key(queue: Mapping[str, Any], sort: str) -> tuple[float, str]:
    """Sort key: by name, or largest first."""
    most = {"name": 0.0, "oldest": queue["oldest"] or 0.0, **queue["counts"]}[sort]
    return -most, queue["name"]


def drain_rates(
    steps: Steps, reach: Access, queues: Sequence[Mapping[str, Any]]
) -> dict[str, DrainRate]:
    """Pure: the drain rates of queues, from the counts of the last minutes."""
    recent: dict[str, list[tuple[int, StatisticsRow]]] = {}
    for at, step in steps.items():
        for line in step.of(reach) or []:
            recent.setdefault(line.queue, []).append((at, line))
    seconds = sum(step.seconds for step in steps.values())
    return {
        queue["name"]: _drain_rate(recent.get(queue["name"], []), seconds, queue["counts"])
        for queue in queues
    }


def _drain_rate(
    recent: list[tuple[int, StatisticsRow]], seconds: int, counts: Mapping[str, int]
) -> DrainRate:
    ended = sum(line.succeeded + line.dead for _, line in recent)
    rate = ended / seconds if seconds else 0.0
    depth = counts[State.READY] + counts[State.RUNNING]
    known: Counter[int] = Counter()
    for at, line in recent:
        if line.depths is not None:
            known[at] += line.depths.get(State.READY, 0)
    first = known[min(known)] if known else 0
    grows = bool(known) and counts[State.READY] > max(10, 1.2 * first)
    return DrainRate(rate, depth / rate if rate and depth else None, grows)


ROUTES = (
    page_route("/queues", queues_page, "Queues", query=QueuesQuery),
    page_route("/queues/lanes", lanes_page, "Lanes of a queue", query=LanesQuery, everyone=True),
    *queue_actions.ROUTES,
)
