"""What people do to one job: cancel, redrive, take it from its worker, forget what it held."""

from __future__ import annotations

from dataclasses import replace

from starlette.responses import Response

from ...model.errors import TooEarly, TooLate
from ...model.job import Job
from ...model.lifecycle import State
from ...model.tokens import Scope
from ...ops import report
from ..api.asked import Incoming, ReasonBody
from ..api.naming import id_in
from ..api.steering import cancel_job, forget_job, reclaim_job, redrive_job
from ..calls import Call
from .acting import Blank, Question, ask, done, form, refused
from .pages import acts, seen


async def ask_cancel_job(call: Call) -> Response:
    job = await _job(call)
    question = _question(
        job,
        "cancel",
        "It runs: it is asked to stop, and ends when its handler heeds that."
        if job.state is State.RUNNING
        else "It will not run. Those that wait for it are told that it was cancelled.",
    )
    reason = Blank("reason", "Reason, kept with the job")
    return await ask(call, replace(question, danger=True, blank=reason))


async def do_cancel_job(call: Call) -> Response:
    id = id_in(call)
    asked = await form(call, ReasonBody)
    try:
        job = await cancel_job(replace(call, body=asked))
    except TooLate as error:
        return await _nothing(call, id, error)
    stops = job["state"] == State.RUNNING
    said = "It was asked to stop, and ends soon." if stops else "The job is cancelled."
    return await done(call, said, "/jobs", id)


async def ask_redrive_job(call: Call) -> Response:
    consequence = (
        "It starts over with all its attempts, and so do those that are dead because of it."
        " Its history stays."
    )
    return await ask(call, _question(await _job(call), "redrive", consequence))


async def do_redrive_job(call: Call) -> Response:
    id = id_in(call)
    await form(call, Incoming)
    try:
        job = await redrive_job(call)
    except TooLate as error:
        return await _nothing(call, id, error)
    return await done(call, f"The job has a new life: it is {job['state']}.", "/jobs", id)


async def ask_reclaim_job(call: Call) -> Response:
    consequence = (
        "It is taken from its worker and put back, unspent: another attempt starts as soon as a"
        " worker is free. The old one is told to stop, and whatever it still does with the job"
        " counts for nothing. That is for a handler that hangs: a worker that died is noticed"
        " without you."
    )
    return await ask(call, _question(await _job(call), "reclaim", consequence))


async def do_reclaim_job(call: Call) -> Response:
    id = id_in(call)
    await form(call, Incoming)
    held = await _job(call)
    if held.state is not State.RUNNING:
        return await refused(call, f"Nothing was done: the job is {held.state}.", "/jobs", id)
    try:
        job = await reclaim_job(call)
    except TooLate as error:
        return await _nothing(call, id, error)
    said = f"The job was taken from {held.worker}: it is {job['state']}."
    return await done(call, said, "/jobs", id)


async def ask_forget_job(call: Call) -> Response:
    consequence = (
        "Its arguments, its result, its errors, its kept steps and all that it said are erased for"
        " good. That it was, when, and how it ended stays, and so does its key. A redrive would"
        " find no arguments."
    )
    return await ask(call, replace(_question(await _job(call), "forget", consequence), danger=True))


async def do_forget_job(call: Call) -> Response:
    id = id_in(call)
    await form(call, Incoming)
    try:
        await forget_job(call)
    except TooEarly as error:
        return await _nothing(call, id, error)
    said = "What the job was given, gave and said is erased; how it ended stays."
    return await done(call, said, "/jobs", id)


async def _job(call: Call) -> Job:
    return await call.ol.store.arun(report.job, id_in(call), call.reach)


def _question(job: Job, verb: str, consequence: str) -> Question:
    return Question(
        title=f"{verb.capitalize()} this {job.task} job?",
        consequence=consequence,
        button=f"{verb.capitalize()} it",
        path=f"/jobs/{job.id}/{verb}",
        back=f"/jobs/{job.id}",
    )


async def _nothing(call: Call, id: str, error: Exception) -> Response:
    return await refused(call, f"Nothing was done: {error}", "/jobs", id)


ROUTES = (
    seen("/jobs/{id}/cancel", ask_cancel_job, "Cancel a job?", scope=Scope.ADMIN),
    seen("/jobs/{id}/redrive", ask_redrive_job, "Redrive a job?", scope=Scope.ADMIN),
    seen("/jobs/{id}/reclaim", ask_reclaim_job, "Take a job back?", scope=Scope.ADMIN),
    seen("/jobs/{id}/forget", ask_forget_job, "Forget a job?", scope=Scope.ADMIN),
    acts("/jobs/{id}/cancel", do_cancel_job, "Cancel a job"),
    acts("/jobs/{id}/redrive", do_redrive_job, "Redrive a job"),
    acts("/jobs/{id}/reclaim", do_reclaim_job, "Take a job from its worker"),
    acts("/jobs/{id}/forget", do_forget_job, "Forget what a job was given, gave and said"),
)
