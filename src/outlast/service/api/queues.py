"""Queues: what they hold, and stopping and starting them for everybody."""

from __future__ import annotations

from typing import Any

from ...model.lifecycle import State
from ...model.tokens import Scope
from ...ops import operate, report
from ...ops.keep import set_keep
from ...ops.search import Kind
from ..calls import Call
from ..census import by_state
from ..problems import Forbidden
from ..route import Route
from . import PREFIX
from .asked import KeepBody, QueueBody
from .steering import tell
from .views import QueueKeep, Queues, QueueState


async def list_queues(call: Call) -> dict[str, Any]:
    counted = await call.service.census.counted()
    told = await call.ol.store.arun(report.queue_settings)
    kinds: dict[str, list[Kind]] = {}
    for kind in counted.of(call.reach):
        kinds.setdefault(kind.queue, []).append(kind)
    names = set(kinds)
    if call.who.tenant is None:  # one that is empty is nobody's, and everybody's
        names |= {name for name in told if call.who.serves(name)}
    return {
        "queues": [
            _queue(told.get(name) or report.Queue(name), kinds.get(name, []))
            for name in sorted(names)
        ],
        "age": counted.age,
    }


def _queue(queue: report.Queue, kinds: list[Kind]) -> dict[str, Any]:
    ready = [kind.oldest for kind in kinds if kind.state == State.READY]
    oldest = max(ready, default=None)
    facts = {"name": queue.name, "paused": queue.paused, "keep": queue.keep}
    return {**facts, "counts": by_state(kinds), "oldest": oldest}


async def pause_queue(call: Call) -> dict[str, Any]:
    return await _set_paused(call, True)


async def resume_queue(call: Call) -> dict[str, Any]:
    return await _set_paused(call, False)


async def _set_paused(call: Call, paused: bool) -> dict[str, Any]:
    asked: QueueBody = call.body
    need(call, asked.queue)
    await call.ol.store.arun(operate.set_paused, asked.queue, paused, call.by)
    if not paused:
        await tell(call, asked.queue)
    return {"queue": asked.queue, "paused": paused}


async def keep_queue(call: Call) -> dict[str, Any]:
    asked: KeepBody = call.body
    need(call, asked.queue)
    await call.ol.store.arun(set_keep, asked.queue, asked.keep, call.by)
    return {"queue": asked.queue, "keep": asked.keep}


def need(call: Call, queue: str) -> None:
    if not call.who.serves(queue):
        raise Forbidden(f"this token does not reach the queue {queue!r}")


ROUTES = (
    Route(
        "GET", f"{PREFIX}/queues", Scope.READ, list_queues, "What each queue holds",
        response=Queues,
    ),
    Route(
        "POST", f"{PREFIX}/queues/pause", Scope.ADMIN, pause_queue,
        "No more jobs of this queue are claimed; running ones go on",
        request=QueueBody, response=QueueState, everyone=True,
    ),
    Route(
        "POST", f"{PREFIX}/queues/resume", Scope.ADMIN, resume_queue,
        "Jobs of this queue are claimed again",
        request=QueueBody, response=QueueState, everyone=True,
    ),
    Route(
        "POST", f"{PREFIX}/queues/keep", Scope.ADMIN, keep_queue,
        "How long ended jobs of this queue are kept at the most",
        request=KeepBody, response=QueueKeep, everyone=True,
    ),
)  # fmt: skip
