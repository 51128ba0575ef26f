"""The page of workers and the jobs that they run. Workers serve all tenants."""

from __future__ import annotations

from dataclasses import replace

from starlette.responses import Response

from ...model.api_token import Scope
from ...model.errors import WorkerNotFound
from ...model.worker_names import is_offer, is_remote
from ...ops import live_stats, report
from ..api.request_models import WorkerBody
from ..api.workers import drain_worker, require_all_queues, undrain_worker
from ..request import RequestContext
from .confirm import (
    Confirmation,
    confirmation_page,
    redirect_done,
    redirect_refused,
    submitted_form,
)
from .pages import action_route, page_route, render_page

MAX_SHOWN_JOBS = 20  # jobs of one worker


async def workers_page(call: RequestContext) -> Response:
    found = await call.ol.store.arun(report.workers)
    queues = call.who.queues
    workers = [one for one in found if queues is None or any(one.serves(queue) for queue in queues)]
    held = await call.ol.store.arun(live_stats.jobs_by_worker, call.reach)
    known = {worker.id for worker in workers}
    others = {id: jobs for id, jobs in held.items() if id not in known} if queues is None else {}
    return await render_page(
        call,
        "workers.html",
        workers=sorted(workers, key=lambda one: (not one.alive, one.host, one.pid)),
        held=held,
        strays={id: jobs for id, jobs in others.items() if not is_offer(id)},
        offered=[job for id, jobs in others.items() if is_offer(id) for job in jobs],
        shown=MAX_SHOWN_JOBS,
        may_drain=call.who.has_scope(Scope.ADMIN) and queues is None,
        is_remote=is_remote,
    )


async def ask_drain_worker(call: RequestContext) -> Response:
    consequence = (
        "The worker claims no more jobs; its running jobs continue. The process runs until stopped,"
        " which then interrupts nothing. Until then you can let it claim again."
    )
    return await _confirm(call, "Drain the worker {}?", consequence, "drain")


async def ask_undrain_worker(call: RequestContext) -> Response:
    return await _confirm(
        call, "Let the worker {} claim again?", "The worker claims jobs again.", "undrain"
    )


async def do_drain_worker(call: RequestContext) -> Response:
    return await _set_draining(call, True)


async def do_undrain_worker(call: RequestContext) -> Response:
    return await _set_draining(call, False)


async def _confirm(call: RequestContext, title: str, consequence: str, verb: str) -> Response:
    require_all_queues(call)
    params: WorkerBody = call.query
    confirmation = Confirmation(
        title=title.format(params.worker),
        consequence=consequence,
        button="Drain it" if verb == "drain" else "Let it claim",
        path=f"/workers/{verb}",
        back="/workers",
        fields={"worker": params.worker},
    )
    return await confirmation_page(call, confirmation)


async def _set_draining(call: RequestContext, draining: bool) -> Response:
    body = await submitted_form(call, WorkerBody)
    set_draining = drain_worker if draining else undrain_worker
    try:
        await set_draining(replace(call, body=body))
    except WorkerNotFound as error:
        return await redirect_refused(call, f"No change: {error}", "/workers")
    effect = "is draining; its running jobs continue" if draining else "claims again"
    return await redirect_done(call, f"The worker {body.worker} {effect}.", "/workers")


ROUTES = (
    page_route("/workers", workers_page, "Workers and their jobs", everyone=True),
    page_route(
        "/workers/drain",
        ask_drain_worker,
        "Drain a worker?",
        query=WorkerBody,
        everyone=True,
        scope=Scope.ADMIN,
    ),
    page_route(
        "/workers/undrain",
        ask_undrain_worker,
        "Let a worker claim again?",
        query=WorkerBody,
        everyone=True,
        scope=Scope.ADMIN,
    ),
    action_route("/workers/drain", do_drain_worker, "Drain a worker", everyone=True),
    action_route("/workers/undrain", do_undrain_worker, "Let a worker claim again", everyone=True),
)
