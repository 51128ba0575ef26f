"""Workers and their maintenance duties. They serve all tenants."""

from __future__ import annotations

from dataclasses import asdict

from ...model.api_token import Scope
from ...ops import report
from ...ops.enqueue import CANCEL_SIGNAL
from ...ops.workers import set_draining
from ..problems import Forbidden
from ..request import RequestContext
from ..route import Route
from . import PREFIX
from .job_actions import notify_workers
from .jobs import jsonable
from .request_models import WorkerBody
from .response_models import DrainState, Duties, Workers


async def list_workers(call: RequestContext) -> dict[str, object]:
    found = await call.ol.store.arun(report.workers)
    seen = [
        one
        for one in found
        if call.who.queues is None or any(one.serves(queue) for queue in call.who.queues)
    ]
    return {"workers": [{**jsonable(asdict(one)), "alive": one.alive} for one in seen]}


async def list_duties(call: RequestContext) -> dict[str, object]:
    found = await call.ol.store.arun(report.duties)
    return {"duties": [jsonable(asdict(one)) for one in found]}


async def drain_worker(call: RequestContext) -> dict[str, object]:
    return await _set_draining(call, True)


async def undrain_worker(call: RequestContext) -> dict[str, object]:
    return await _set_draining(call, False)


async def _set_draining(call: RequestContext, draining: bool) -> dict[str, object]:
    require_all_queues(call)
    body: WorkerBody = call.body
    await call.ol.store.arun(set_draining, body.worker, draining, call.by)
    await notify_workers(call, CANCEL_SIGNAL)  # workers renew on this signal, and read the request
    return {"worker": body.worker, "draining": draining}


def require_all_queues(call: RequestContext) -> None:
    if call.who.queues is not None:
        raise Forbidden("this concerns all queues: use a token that is not restricted to some")


ROUTES = (
    Route(
        "GET", f"{PREFIX}/workers", Scope.READ, list_workers,
        "The worker processes and their last heartbeats",
        response=Workers, everyone=True,
    ),
    Route(
        "GET", f"{PREFIX}/duties", Scope.READ, list_duties,
        "Maintenance duties and their last results", response=Duties, everyone=True,
    ),
    Route(
        "POST", f"{PREFIX}/workers/drain", Scope.ADMIN, drain_worker,
        "Stop a worker from claiming jobs; its running jobs continue",
        request=WorkerBody, response=DrainState, everyone=True, statuses=(404,),
    ),
    Route(
        "POST", f"{PREFIX}/workers/undrain", Scope.ADMIN, undrain_worker,
        "Let a worker claim again",
        request=WorkerBody, response=DrainState, everyone=True, statuses=(404,),
    ),
)  # fmt: skip
