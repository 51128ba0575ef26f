"""Signals from outside: `POST /api/v1/jobs/{id}/signals/{name}`. The sender is recorded."""

from __future__ import annotations

from ...client.signals import declared_signals
from ...model.api_token import Scope
from ...model.arguments.signal_value import write_signal
from ...model.options import check_name
from ...ops.signals import NewSignal, SentSignal, send_signal
from ..request import RequestContext
from ..route import Route
from . import PREFIX
from .job_actions import notify_workers
from .params import job_id_of, merged_key, request_key
from .request_models import SignalBody
from .response_models import SignalSent


async def send_job_signal(call: RequestContext) -> SignalSent:
    body: SignalBody = call.body
    name = check_name("signal", call.request.path_params["name"])
    key = merged_key(request_key(call.request), body.key)
    sent = await send(call, NewSignal(job_id_of(call), name, write_signal(name, body.value), key))
    return SignalSent(job=sent.job, signal=sent.name, new=sent.new, woken=sent.woke)


async def send(call: RequestContext, signal: NewSignal) -> SentSignal:
    """Send a signal to a job in the caller's reach."""
    check = declared_signals(call.ol.registry)
    sent = await call.ol.store.arun(send_signal, signal, call.by, check, call.reach)
    if sent.queue is not None:
        await notify_workers(call, sent.queue)
    return sent


ROUTES = (
    Route(
        "POST", f"{PREFIX}/jobs/{{id}}/signals/{{name}}", Scope.SIGNAL, send_job_signal,
        "Send a signal to a job that waits, or will wait, for it",
        request=SignalBody, response=SignalSent, statuses=(404, 409),
        headers={"Idempotency-Key": "of several signals of this name with one key, the first is"
                 " kept; an alternative to `key` in the body"},
    ),
)  # fmt: skip
