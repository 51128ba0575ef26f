"""Operator actions on a queue: pause, resume, close breakers, set the retention."""

from __future__ import annotations

from dataclasses import replace

from starlette.responses import Response

from ...model.api_token import Scope
from ...model.humanize import compact_duration, duration_seconds, pluralize
from ...model.retry import MAX_DELAY_S
from ...ops import report
from ..api.queues import close_queue_breaker, keep_queue, pause_queue, require_queue, resume_queue
from ..api.request_models import BreakerBody, KeepBody, QueueBody, Reason
from ..request import RequestContext
from .confirm import (
    Confirmation,
    FormField,
    confirmation_page,
    redirect_done,
    redirect_refused,
    submitted_form,
)
from .formatting import duration
from .pages import action_route, page_route


class KeepForm(QueueBody):
    keep: Reason = ""  # a duration as typed; empty: the general retention


async def ask_pause_queue(call: RequestContext) -> Response:
    consequence = (
        "No worker will claim its jobs. Running jobs continue, and jobs can still be enqueued; they"
        " wait until the queue is resumed."
    )
    return await confirmation_page(call, _confirmation(call, "pause", consequence))


async def ask_resume_queue(call: RequestContext) -> Response:
    return await confirmation_page(
        call, _confirmation(call, "resume", "Workers will claim its jobs again.")
    )


async def ask_keep_queue(call: RequestContext) -> Response:
    retention = call.ol.retention
    consequence = (
        f"By the settings of this service, all queues keep succeeded jobs for"
        f" {duration(retention.keep_succeeded)} and cancelled jobs for"
        f" {duration(retention.keep_cancelled)}. This queue can keep both for a shorter time; dead"
        " jobs stay in any case. Older jobs are removed permanently."
    )
    confirmation = _confirmation(call, "keep", consequence)
    settings = await call.ol.store.arun(report.queue_settings)
    now = settings[call.query.queue].keep if call.query.queue in settings else None
    hint = "Such as 30m, 2h or 1d; blank: as long as all other queues."
    blank = FormField("keep", "Keep them for", "" if now is None else compact_duration(now), hint)
    title = f"How long does {call.query.queue} keep ended jobs?"
    return await confirmation_page(
        call, replace(confirmation, title=title, button="Set it", blank=blank)
    )


async def do_pause_queue(call: RequestContext) -> Response:
    body = await submitted_form(call, QueueBody)
    await pause_queue(replace(call, body=body))
    message = f"The queue {body.queue} is paused: its running jobs continue."
    return await redirect_done(call, message, "/queues")


async def do_resume_queue(call: RequestContext) -> Response:
    body = await submitted_form(call, QueueBody)
    await resume_queue(replace(call, body=body))
    return await redirect_done(
        call, f"The queue {body.queue} is resumed: its jobs are claimed again.", "/queues"
    )


async def ask_close_breaker(call: RequestContext) -> Response:
    consequence = (
        "Workers claim all jobs of the tasks with an open breaker again, at once. A breaker also"
        " closes by itself when a probe succeeds, and it opens again if the task's dependency is"
        " still down."
    )
    confirmation = _confirmation(call, "close-breaker", consequence)
    title = f"Close the open breakers of {call.query.queue}?"
    return await confirmation_page(call, replace(confirmation, title=title, button="Close them"))


async def do_close_breaker(call: RequestContext) -> Response:
    queue_body = await submitted_form(call, QueueBody)
    breaker_body = BreakerBody(queue=queue_body.queue, task=None)
    result = await close_queue_breaker(replace(call, body=breaker_body))
    message = f"{pluralize(result['closed'], 'breaker')} of the queue {queue_body.queue} closed."
    return await redirect_done(call, message, "/queues")


async def do_keep_queue(call: RequestContext) -> Response:
    body = await submitted_form(call, KeepForm)
    require_queue(call, body.queue)
    span_text = body.keep.strip()
    keep = duration_seconds(span_text) if span_text else None
    if span_text and (keep is None or keep > MAX_DELAY_S):
        message = f"No change: {span_text} is not a duration; write 30m, 2h or 1d."
        return await redirect_refused(call, message, "/queues")
    await keep_queue(replace(call, body=KeepBody(queue=body.queue, keep=keep)))
    how_long = "as long as all others" if keep is None else f"for {duration(keep)} at most"
    return await redirect_done(
        call, f"The queue {body.queue} keeps ended jobs {how_long}.", "/queues"
    )


def _confirmation(call: RequestContext, verb: str, consequence: str) -> Confirmation:
    body: QueueBody = call.query
    require_queue(call, body.queue)
    return Confirmation(
        title=f"{verb.capitalize()} the queue {body.queue}?",
        consequence=consequence,
        button=f"{verb.capitalize()} it",
        path=f"/queues/{verb}",
        back="/queues",
        fields={"queue": body.queue},
    )


ROUTES = (
    page_route(
        "/queues/pause",
        ask_pause_queue,
        "Pause a queue?",
        query=QueueBody,
        everyone=True,
        scope=Scope.ADMIN,
    ),
    page_route(
        "/queues/resume",
        ask_resume_queue,
        "Resume a queue?",
        query=QueueBody,
        everyone=True,
        scope=Scope.ADMIN,
    ),
    page_route(
        "/queues/keep",
        ask_keep_queue,
        "How long does a queue keep ended jobs?",
        query=QueueBody,
        everyone=True,
        scope=Scope.ADMIN,
    ),
    page_route(
        "/queues/close-breaker",
        ask_close_breaker,
        "Close a queue's breakers?",
        query=QueueBody,
        everyone=True,
        scope=Scope.ADMIN,
    ),
    action_route(
        "/queues/close-breaker", do_close_breaker, "Close a queue's breakers", everyone=True
    ),
    action_route("/queues/pause", do_pause_queue, "Pause a queue", everyone=True),
    action_route("/queues/resume", do_resume_queue, "Resume a queue", everyone=True),
    action_route(
        "/queues/keep", do_keep_queue, "Set how long a queue keeps ended jobs", everyone=True
    ),
)
