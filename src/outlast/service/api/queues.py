"""Queues: job counts, pausing, breakers and retention."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ...model.api_token import Scope
from ...model.lane import checked_overrides
from ...model.lifecycle import State
from ...ops import job_actions, report
from ...ops.breaker_report import BreakerState, breakers
from ...ops.breakers import close_breaker
from ...ops.lane_report import deepest_lanes
from ...ops.limits import change_limits
from ...ops.retention import set_retention
from ...ops.search import KindCount
from ..job_counts import by_state
from ..problems import Forbidden
from ..request import RequestContext
from ..route import Route
from . import PREFIX
from .job_actions import notify_workers
from .request_models import BreakerBody, KeepBody, LanesQuery, LimitBody, QueueBody
from .response_models import (
    BreakersClosed,
    BreakerView,
    Lanes,
    QueueKeep,
    QueueLimitsView,
    Queues,
    QueueState,
)


async def list_queues(call: RequestContext) -> dict[str, Any]:
    counted = await call.service.job_counts.snapshot()
    settings = await call.ol.store.arun(report.queue_settings)
    held = await call.ol.store.arun(breakers)
    kinds: dict[str, list[KindCount]] = {}
    for kind in counted.of(call.reach):
        kinds.setdefault(kind.queue, []).append(kind)
    names = set(kinds)
    if call.who.tenant is None:  # an empty queue belongs to no tenant
        names |= {name for name in settings if call.who.can_access(name)}
        names |= {one.queue for one in held if call.who.can_access(one.queue)}
    return {
        "queues": [
            _queue(settings.get(name) or report.Queue(name), kinds.get(name, []))
            | {"breakers": [_breaker(one, call) for one in held if one.queue == name]}
            for name in sorted(names)
        ],
        "age": counted.age,
    }


def _queue(queue: report.Queue, kinds: list[KindCount]) -> dict[str, Any]:
    ready = [kind.oldest for kind in kinds if kind.state == State.READY]
    oldest = max(ready, default=None)
    facts = {"name": queue.name, "paused": queue.paused, "keep": queue.keep, "limits": queue.limits}
    return {**facts, "counts": by_state(kinds), "oldest": oldest}


def _breaker(breaker: BreakerState, call: RequestContext) -> dict[str, Any]:
    """An open breaker; a tenant does not see its error, which may be of another tenant's job."""
    facts = {**asdict(breaker), "opened_at": breaker.opened_at.isoformat()}
    if call.who.tenant is not None:
        facts["message"] = facts["opened_by"] = None
    return {name: facts[name] for name in BreakerView.model_fields}


async def close_queue_breaker(call: RequestContext) -> dict[str, Any]:
    body: BreakerBody = call.body
    require_queue(call, body.queue)
    closed = await call.ol.store.arun(close_breaker, body.queue, body.task, None, call.by)
    if closed:
        await notify_workers(call, "")
    held = await call.ol.store.arun(breakers)
    open_tasks = [one.task for one in held if one.queue == body.queue]
    return {"queue": body.queue, "closed": len(closed), "open": open_tasks}


async def pause_queue(call: RequestContext) -> dict[str, object]:
    return await _set_paused(call, True)


async def resume_queue(call: RequestContext) -> dict[str, object]:
    return await _set_paused(call, False)


async def _set_paused(call: RequestContext, paused: bool) -> dict[str, object]:
    body: QueueBody = call.body
    require_queue(call, body.queue)
    await call.ol.store.arun(job_actions.set_paused, body.queue, paused, call.by)
    if not paused:
        await notify_workers(call, body.queue)
    return {"queue": body.queue, "paused": paused}


async def keep_queue(call: RequestContext) -> dict[str, object]:
    body: KeepBody = call.body
    require_queue(call, body.queue)
    await call.ol.store.arun(set_retention, body.queue, body.keep, call.by)
    return {"queue": body.queue, "keep": body.keep}


async def list_lanes(call: RequestContext) -> dict[str, Any]:
    """The deepest lanes of a queue. Their names may be tenants, so tenant tokens are refused."""
    query: LanesQuery = call.query
    require_queue(call, query.queue)
    found = await call.ol.store.arun(deepest_lanes, query.queue)
    return {"queue": query.queue, "lanes": [asdict(lane) for lane in found]}


async def limit_queue(call: RequestContext) -> dict[str, object]:
    body: LimitBody = call.body
    require_queue(call, body.queue)
    changes = checked_overrides(body.changes)
    changed = await call.ol.store.arun(change_limits, body.queue, changes, call.by, body.reset)
    await notify_workers(call, body.queue)
    limits = changed.limits.as_json()
    return {"queue": body.queue, "limits": limits, "overrides": changed.overrides}


def require_queue(call: RequestContext, queue: str) -> None:
    if not call.who.can_access(queue):
        raise Forbidden(f"this token has no access to the queue {queue!r}")


ROUTES = (
    Route(
        "GET", f"{PREFIX}/queues", Scope.READ, list_queues, "The queues and their job counts",
        response=Queues,
    ),
    Route(
        "POST", f"{PREFIX}/queues/pause", Scope.ADMIN, pause_queue,
        "Stop claiming jobs of this queue; running ones continue",
        request=QueueBody, response=QueueState, everyone=True,
    ),
    Route(
        "POST", f"{PREFIX}/queues/resume", Scope.ADMIN, resume_queue,
        "Resume claiming jobs of this queue",
        request=QueueBody, response=QueueState, everyone=True,
    ),
    Route(
        "POST", f"{PREFIX}/queues/close-breaker", Scope.ADMIN, close_queue_breaker,
        "Close open circuit breakers of this queue, and claim its jobs again at once",
        request=BreakerBody, response=BreakersClosed, everyone=True,
    ),
    Route(
        "POST", f"{PREFIX}/queues/keep", Scope.ADMIN, keep_queue,
        "Set the maximum time for which this queue keeps ended jobs",
        request=KeepBody, response=QueueKeep, everyone=True,
    ),
    Route(
        "GET", f"{PREFIX}/queues/lanes", Scope.READ, list_lanes,
        "The lanes of a limited queue with the most ready jobs",
        query=LanesQuery, response=Lanes, everyone=True,
    ),
    Route(
        "POST", f"{PREFIX}/queues/limit", Scope.ADMIN, limit_queue,
        "Change limits of this queue at run time",
        request=LimitBody, response=QueueLimitsView, everyone=True,
    ),
)  # fmt: skip
