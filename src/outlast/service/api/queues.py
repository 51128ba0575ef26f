"""Queues: what they hold, and stopping and starting them for everybody."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ...model.lifecycle import State
from ...model.tokens import Scope
from ...ops import operate, report
from ...ops.breaker_report import BreakerState, breakers
from ...ops.breakers import close_breaker
from ...ops.keep import set_keep
from ...ops.search import Kind
from ..calls import Call
from ..census import by_state
from ..problems import Forbidden
from ..route import Route
from . import PREFIX
from .asked import BreakerBody, KeepBody, QueueBody
from .steering import tell
from .views import BreakersClosed, BreakerView, QueueKeep, Queues, QueueState


async def list_queues(call: Call) -> dict[str, Any]:
    counted = await call.service.census.counted()
    told = await call.ol.store.arun(report.queue_settings)
    held = await call.ol.store.arun(breakers)
    kinds: dict[str, list[Kind]] = {}
    for kind in counted.of(call.reach):
        kinds.setdefault(kind.queue, []).append(kind)
    names = set(kinds)
    if call.who.tenant is None:  # one that is empty is nobody's, and everybody's
        names |= {name for name in told if call.who.serves(name)}
        names |= {one.queue for one in held if call.who.serves(one.queue)}
    return {
        "queues": [
            _queue(told.get(name) or report.Queue(name), kinds.get(name, []))
            | {"breakers": [_breaker(one, call) for one in held if one.queue == name]}
            for name in sorted(names)
        ],
        "age": counted.age,
    }


def _queue(queue: report.Queue, kinds: list[Kind]) -> dict[str, Any]:
    ready = [kind.oldest for kind in kinds if kind.state == State.READY]
    oldest = max(ready, default=None)
    facts = {"name": queue.name, "paused": queue.paused, "keep": queue.keep}
    return {**facts, "counts": by_state(kinds), "oldest": oldest}


def _breaker(breaker: BreakerState, call: Call) -> dict[str, Any]:
    """What an error says may be of anybody's job."""
    told = {**asdict(breaker), "opened_at": breaker.opened_at.isoformat()}
    if call.who.tenant is not None:
        told["message"] = told["opened_by"] = None
    return {name: told[name] for name in BreakerView.model_fields}


async def close_queue_breaker(call: Call) -> dict[str, Any]:
    asked: BreakerBody = call.body
    need(call, asked.queue)
    closed = await call.ol.store.arun(close_breaker, asked.queue, asked.task, None, call.by)
    if closed:
        await tell(call, "")
    held = await call.ol.store.arun(breakers)
    still = [one.task for one in held if one.queue == asked.queue]
    return {"queue": asked.queue, "closed": len(closed), "open": still}


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
        "POST", f"{PREFIX}/queues/close-breaker", Scope.ADMIN, close_queue_breaker,
        "Close open circuit breakers of this queue: its jobs are claimed again at once",
        request=BreakerBody, response=BreakersClosed, everyone=True,
    ),
    Route(
        "POST", f"{PREFIX}/queues/keep", Scope.ADMIN, keep_queue,
        "How long ended jobs of this queue are kept at the most",
        request=KeepBody, response=QueueKeep, everyone=True,
    ),
)  # fmt: skip
