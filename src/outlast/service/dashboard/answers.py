"""Answer forms: forms on the page of a job that waits for a signal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from ...client.signal_links import declared_forms
from ...model.api_token import Scope
from ...model.errors import InvalidSignal, KeyConflict, TooLate
from ...model.job import Job
from ...model.options import check_name
from ...model.signal_form import FormInput, form_buttons, form_inputs, submitted_value
from ...model.signal_link import Choice
from ...model.wait import WaitKind
from ...ops import report
from ...ops.signals import NewSignal
from ...ops.wait_report import WaitRecord, current_wait, wait_forms
from ..api.params import job_id_of
from ..api.signals import send
from ..parsing import fields_of, media_type_of
from ..problems import UnsupportedMediaType
from ..request import RequestContext
from ..route import HTML, Route
from .confirm import FORM, MAX_FORM_BYTES, redirect_done, redirect_refused

Schema = Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """The form for one of the signals that a job waits for."""

    signal: str
    buttons: tuple[Choice, ...]
    inputs: list[FormInput]


async def answer_forms(call: RequestContext, job: Job, wait: WaitRecord | None) -> list[AnswerForm]:
    """The forms that this caller may fill in."""
    if wait is None or wait.kind != WaitKind.SIGNAL or not call.who.has_scope(Scope.SIGNAL):
        return []
    stored = await call.ol.store.arun(wait_forms, job.id)
    return [_form(name, _schema(call, job, name, stored)) for name in wait.subjects]


def _form(name: str, schema: Schema) -> AnswerForm:
    buttons = form_buttons(schema)
    return AnswerForm(name, buttons, [] if buttons else form_inputs(schema))


def _schema(call: RequestContext, job: Job, name: str, stored: Mapping[str, Any]) -> Schema:
    """The schema of a signal: from the handler's wait, else from the task's declaration."""
    found: Schema = stored.get(name)
    try:
        return found or declared_forms(call.ol.registry)(job.task, name)
    except InvalidSignal:  # the code no longer declares it
        return None


async def do_signal_job(call: RequestContext) -> Response:
    """Send the signal of a form. Its key is that of the wait, so that of several answers the first
    one counts."""
    id, name = job_id_of(call), check_name("signal", call.request.path_params["name"])
    if media_type_of(call.request) != FORM:
        raise UnsupportedMediaType(f"send a form ({FORM})")
    submitted = await fields_of(call.request, MAX_FORM_BYTES)
    job = await call.ol.store.arun(report.job, id, call.reach)
    wait = await call.ol.store.arun(current_wait, job)
    if wait is None or name not in wait.subjects:
        text = f"No change: the job no longer waits for {name}."
        return await redirect_refused(call, text, "/jobs", id)
    schema = _schema(call, job, name, await call.ol.store.arun(wait_forms, id))
    key = f"page {wait.name:.100} {wait.since.timestamp()}"
    try:
        value = submitted_value(name, schema, form_buttons(schema), submitted)
        sent = await send(call, NewSignal(id, name, value, key))
    except (InvalidSignal, KeyConflict, TooLate) as error:
        return await redirect_refused(call, f"Nothing was sent: {error}", "/jobs", id)
    text = f"{name} was sent." if sent.new else f"{name} was sent before."
    return await redirect_done(call, text, "/jobs", id)


ROUTES = (
    Route(
        "POST", "/jobs/{id}/signals/{name}", Scope.SIGNAL, do_signal_job,
        "Answer a job that waits for a signal", status=303, media=(HTML,),
    ),
)  # fmt: skip
