"""The page of queues: what each holds, and stopping and starting them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pydantic import BaseModel, Field
from starlette.responses import Response

from ...model.lifecycle import State
from ...model.tokens import Scope
from ...ops import operate
from ...ops.statistics import SPAN, Line
from ..api.queues import list_queues
from ..api.steering import tell
from ..calls import Call
from ..problems import Forbidden
from .acting import Question, ask, done, form
from .pages import acts, page, seen

RECENT = 300  # seconds: what a rate is made of


class Drain(NamedTuple):
    rate: float  # jobs that end in a second
    seconds: float | None  # until it is empty, if nothing is added; None: nobody can say
    grows: bool  # more is added than is done


class QueueNamed(BaseModel):
    queue: str = Field(min_length=1, max_length=200)


async def queues_page(call: Call) -> Response:
    listed = await list_queues(call)
    board, lines = (await call.service.live.latest()).of(call.reach)
    drains = {
        queue["name"]: drain(lines, queue["name"], board.at, queue["counts"])
        for queue in listed["queues"]
    }
    return await page(
        call, "queues.html", queues=listed["queues"], age=listed["age"], drains=drains
    )


def drain(lines: Sequence[Line], queue: str, now: float, counts: Mapping[str, int]) -> Drain:
    """Pure: how fast a queue is worked off, from what was counted in the last minutes."""
    recent = [line for line in lines if line.queue == queue and line.at >= now - RECENT]
    spans = {line.at for line in lines if line.at >= now - RECENT}
    ended = sum(line.succeeded + line.dead for line in recent)
    rate = ended / (len(spans) * SPAN) if spans else 0.0
    depth = counts[State.READY] + counts[State.RUNNING]
    known: dict[int, int] = {}
    for line in recent:
        if line.depths is not None:
            known[line.at] = known.get(line.at, 0) + line.depths.get(State.READY, 0)
    first = known[min(known)] if known else 0
    grows = bool(known) and counts[State.READY] > max(10, 1.2 * first)
    return Drain(rate, depth / rate if rate and depth else None, grows)


async def ask_pause_queue(call: Call) -> Response:
    queue = _reached(call, call.query)
    return await ask(
        call,
        Question(
            title=f"Pause the queue {queue}?",
            consequence="No more of its jobs will be claimed, by any worker. Those that run go on"
            " to their end, and new ones may be added; they wait until it is resumed.",
            button="Pause it",
            path="/queues/pause",
            back="/queues",
            fields={"queue": queue},
        ),
    )


async def ask_resume_queue(call: Call) -> Response:
    queue = _reached(call, call.query)
    return await ask(
        call,
        Question(
            title=f"Resume the queue {queue}?",
            consequence="Its jobs will be claimed again, from now on.",
            button="Resume it",
            path="/queues/resume",
            back="/queues",
            fields={"queue": queue},
        ),
    )


async def do_pause_queue(call: Call) -> Response:
    queue = _reached(call, await form(call, QueueNamed))
    await call.ol.store.arun(operate.set_paused, queue, True, call.by)
    return await done(call, f"The queue {queue} is paused: its running jobs go on.", "/queues")


async def do_resume_queue(call: Call) -> Response:
    queue = _reached(call, await form(call, QueueNamed))
    await call.ol.store.arun(operate.set_paused, queue, False, call.by)
    await tell(call, queue)
    return await done(call, f"The queue {queue} is resumed: its jobs are claimed again.", "/queues")


def _reached(call: Call, asked: QueueNamed) -> str:
    if not call.who.serves(asked.queue):
        raise Forbidden(f"this token does not reach the queue {asked.queue!r}")
    return asked.queue


ROUTES = (
    seen("/queues", queues_page, "Queues"),
    seen("/queues/pause", ask_pause_queue, "Pause a queue?", query=QueueNamed, everyone=True,
         scope=Scope.ADMIN),
    seen("/queues/resume", ask_resume_queue, "Resume a queue?", query=QueueNamed, everyone=True,
         scope=Scope.ADMIN),
    acts("/queues/pause", do_pause_queue, "Pause a queue", everyone=True),
    acts("/queues/resume", do_resume_queue, "Resume a queue", everyone=True),
)  # fmt: skip
