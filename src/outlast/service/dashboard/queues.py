"""The page of queues: what each holds, how fast it is worked off, and what is set for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from pydantic import Field
from starlette.responses import Response

from ...model.lifecycle import State
from ...ops.reach import Reach
from ...ops.statistics import Line
from ..api.asked import Incoming
from ..api.queues import list_queues
from ..calls import Call
from . import queue_actions
from .pages import page, seen
from .ranges import Steps, latest
from .wanted import Said

RECENT = 300  # seconds: what a rate is made of
PAGE = 100


class QueuesQuery(Incoming):
    text: Said = ""  # in the name
    sort: Literal["name", "ready", "running", "scheduled", "waiting", "dead", "oldest"] = "name"
    page: int = Field(1, ge=1, le=100_000)


class Drain(NamedTuple):
    rate: float  # jobs that end in a second
    seconds: float | None  # until it is empty, if nothing is added; None: nobody can say
    grows: bool  # more is added than is done


async def queues_page(call: Call) -> Response:
    asked: QueuesQuery = call.query
    listed = await list_queues(call)
    picture = await call.service.live.latest()
    found = [queue for queue in listed["queues"] if asked.text.strip() in queue["name"]]
    found.sort(key=lambda queue: _place(queue, asked.sort))
    first = (asked.page - 1) * PAGE
    shown = found[first : first + PAGE]
    recent = latest(picture.hour, picture.board.at, RECENT)
    return await page(
        call, "queues.html", asked=asked, queues=shown, first=first, number=len(found),
        known=len(listed["queues"]), age=listed["age"], drains=drains(recent, call.reach, shown),
        query={name: value for name, value in asked if name != "page" and value},
    )  # fmt: skip


def _place(queue: Mapping[str, Any], sort: str) -> tuple[float, str]:
    """By name; or the most first."""
    most = {"name": 0.0, "oldest": queue["oldest"] or 0.0, **queue["counts"]}[sort]
    return -most, queue["name"]


def drains(steps: Steps, reach: Reach, queues: Sequence[Mapping[str, Any]]) -> dict[str, Drain]:
    """Pure: how fast queues are worked off, from what was counted in the last minutes."""
    recent: dict[str, list[tuple[int, Line]]] = {}
    for at, step in steps.items():
        for line in step.of(reach) or []:
            recent.setdefault(line.queue, []).append((at, line))
    seconds = sum(step.seconds for step in steps.values())
    return {
        queue["name"]: _drain(recent.get(queue["name"], []), seconds, queue["counts"])
        for queue in queues
    }


def _drain(recent: list[tuple[int, Line]], seconds: int, counts: Mapping[str, int]) -> Drain:
    ended = sum(line.succeeded + line.dead for _, line in recent)
    rate = ended / seconds if seconds else 0.0
    depth = counts[State.READY] + counts[State.RUNNING]
    known: Counter[int] = Counter()
    for at, line in recent:
        if line.depths is not None:
            known[at] += line.depths.get(State.READY, 0)
    first = known[min(known)] if known else 0
    grows = bool(known) and counts[State.READY] > max(10, 1.2 * first)
    return Drain(rate, depth / rate if rate and depth else None, grows)


ROUTES = (
    seen("/queues", queues_page, "Queues", query=QueuesQuery),
    *queue_actions.ROUTES,
)
