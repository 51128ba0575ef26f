"""Operator actions on one job: cancel, redrive, reclaim from its worker, erase its data."""

from __future__ import annotations

from dataclasses import replace

from starlette.responses import Response

from ...model.api_token import Scope
from ...model.errors import TooEarly, TooLate
from ...model.job import Job
from ...model.lifecycle import State
from ...ops import report
from ..api.job_actions import cancel_job, forget_job, reclaim_job, redrive_job
from ..api.params import job_id_of
from ..api.request_models import ReasonBody, RequestModel
from ..request import RequestContext
from .confirm import (
    Confirmation,
    FormField,
    confirmation_page,
    redirect_done,
    redirect_refused,
    submitted_form,
)
from .pages import action_route, page_route


async def ask_cancel_job(call: RequestContext) -> Response:
    job = await _job(call)
    confirmation = _confirmation(
        job,
        "cancel",
        "The job is running: it is asked to stop, and ends when its handler responds."
        if job.state is State.RUNNING
        else "The job will not run. Jobs that wait for it are notified.",
    )
    reason = FormField("reason", "Reason, stored with the job")
    return await confirmation_page(call, replace(confirmation, danger=True, blank=reason))


async def do_cancel_job(call: RequestContext) -> Response:
    id = job_id_of(call)
    body = await submitted_form(call, ReasonBody)
    try:
        job = await cancel_job(replace(call, body=body))
    except TooLate as error:
        return await _not_done(call, id, error)
    stops = job["state"] == State.RUNNING
    message = "The job was asked to stop." if stops else "The job is cancelled."
    return await redirect_done(call, message, "/jobs", id)


async def ask_redrive_job(call: RequestContext) -> Response:
    consequence = (
        "The job starts over with all its attempts, and so do jobs that are dead because of it."
        " Its history stays."
    )
    return await confirmation_page(call, _confirmation(await _job(call), "redrive", consequence))


async def do_redrive_job(call: RequestContext) -> Response:
    id = job_id_of(call)
    await submitted_form(call, RequestModel)
    try:
        job = await redrive_job(call)
    except TooLate as error:
        return await _not_done(call, id, error)
    return await redirect_done(call, f"The job was redriven: it is {job['state']}.", "/jobs", id)


async def ask_reclaim_job(call: RequestContext) -> Response:
    consequence = (
        "The job is reclaimed from its worker without spending an attempt, and starts again as soon"
        " as a worker is free. The old worker is asked to stop, and its later writes to the job are"
        " rejected. Use this for a handler that hangs: jobs of dead workers are reclaimed"
        " automatically."
    )
    return await confirmation_page(call, _confirmation(await _job(call), "reclaim", consequence))


async def do_reclaim_job(call: RequestContext) -> Response:
    id = job_id_of(call)
    await submitted_form(call, RequestModel)
    held = await _job(call)
    if held.state is not State.RUNNING:
        return await redirect_refused(call, f"No change: the job is {held.state}.", "/jobs", id)
    try:
        job = await reclaim_job(call)
    except TooLate as error:
        return await _not_done(call, id, error)
    message = f"The job was reclaimed from {held.worker}: it is {job['state']}."
    return await redirect_done(call, message, "/jobs", id)


async def ask_forget_job(call: RequestContext) -> Response:
    consequence = (
        "The arguments, result, errors, stored steps and event data of the job are erased"
        " permanently. Its times, state and key stay. A redrive would find no arguments."
    )
    return await confirmation_page(
        call, replace(_confirmation(await _job(call), "forget", consequence), danger=True)
    )


async def do_forget_job(call: RequestContext) -> Response:
    id = job_id_of(call)
    await submitted_form(call, RequestModel)
    try:
        await forget_job(call)
    except TooEarly as error:
        return await _not_done(call, id, error)
    message = "The data of the job is erased; its times and state stay."
    return await redirect_done(call, message, "/jobs", id)


async def _job(call: RequestContext) -> Job:
    return await call.ol.store.arun(report.job, job_id_of(call), call.reach)


def _confirmation(job: Job, verb: str, consequence: str) -> Confirmation:
    return Confirmation(
        title=f"{verb.capitalize()} this {job.task} job?",
        consequence=consequence,
        button=f"{verb.capitalize()} it",
        path=f"/jobs/{job.id}/{verb}",
        back=f"/jobs/{job.id}",
    )


async def _not_done(call: RequestContext, id: str, error: Exception) -> Response:
    return await redirect_refused(call, f"No change: {error}", "/jobs", id)


ROUTES = (
    page_route("/jobs/{id}/cancel", ask_cancel_job, "Cancel a job?", scope=Scope.ADMIN),
    page_route("/jobs/{id}/redrive", ask_redrive_job, "Redrive a job?", scope=Scope.ADMIN),
    page_route("/jobs/{id}/reclaim", ask_reclaim_job, "Reclaim a job?", scope=Scope.ADMIN),
    page_route("/jobs/{id}/forget", ask_forget_job, "Forget a job?", scope=Scope.ADMIN),
    action_route("/jobs/{id}/cancel", do_cancel_job, "Cancel a job"),
    action_route("/jobs/{id}/redrive", do_redrive_job, "Redrive a job"),
    action_route("/jobs/{id}/reclaim", do_reclaim_job, "Reclaim a job from its worker"),
    action_route("/jobs/{id}/forget", do_forget_job, "Erase the data of a job"),
)
