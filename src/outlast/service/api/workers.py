"""Who works, and what they do besides: workers and duties. They serve all tenants."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ...model.tokens import Scope
from ...ops import report
from ...ops.enqueue import CANCEL_SIGNAL
from ...ops.seize import set_draining
from ..calls import Call
from ..problems import Forbidden
from ..route import Route
from . import PREFIX
from .asked import WorkerBody
from .jobs import plain
from .steering import tell
from .views import Duties, Workers, WorkerState


async def list_workers(call: Call) -> dict[str, Any]:
    found = await call.ol.store.arun(report.workers)
    seen = [
        one
        for one in found
        if call.who.queues is None or any(one.serves(queue) for queue in call.who.queues)
    ]
    return {"workers": [{**plain(asdict(one)), "alive": one.alive} for one in seen]}


async def list_duties(call: Call) -> dict[str, Any]:
    found = await call.ol.store.arun(report.duties)
    return {"duties": [plain(asdict(one)) for one in found]}


async def drain_worker(call: Call) -> dict[str, Any]:
    return await _set_draining(call, True)


async def undrain_worker(call: Call) -> dict[str, Any]:
    return await _set_draining(call, False)


async def _set_draining(call: Call, draining: bool) -> dict[str, Any]:
    need_all_queues(call)
    asked: WorkerBody = call.body
    await call.ol.store.arun(set_draining, asked.worker, draining, call.by)
    await tell(call, CANCEL_SIGNAL)  # a word at which workers renew, and hear of it
    return {"worker": asked.worker, "draining": draining}


def need_all_queues(call: Call) -> None:
    if call.who.queues is not None:
        raise Forbidden("this concerns all queues: it needs a token that is not for some alone")


ROUTES = (
    Route(
        "GET", f"{PREFIX}/workers", Scope.READ, list_workers,
        "The worker processes, and when they were last heard of",
        response=Workers, everyone=True,
    ),
    Route(
        "GET", f"{PREFIX}/duties", Scope.READ, list_duties,
        "Recurring maintenance, and how it went", response=Duties, everyone=True,
    ),
    Route(
        "POST", f"{PREFIX}/workers/drain", Scope.ADMIN, drain_worker,
        "A worker claims no more, and stays; what it runs goes on",
        request=WorkerBody, response=WorkerState, everyone=True, statuses=(404,),
    ),
    Route(
        "POST", f"{PREFIX}/workers/undrain", Scope.ADMIN, undrain_worker,
        "A worker claims again",
        request=WorkerBody, response=WorkerState, everyone=True, statuses=(404,),
    ),
)  # fmt: skip
