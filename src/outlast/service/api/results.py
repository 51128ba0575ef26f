"""Results, and waiting for them. However many wait, one thread asks the database for all."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ...model.blob import Blob
from ...model.errors import JobFailed, ResultTimeout, TooLate
from ...model.ids import new_job_id
from ...model.job import Job, lenient_json
from ...model.lifecycle import State
from ...model.tokens import Scope
from ...ops import forget as ops
from ...ops import report
from ...ops.forget import erased
from ...store.blobs import aclear
from ..calls import Call
from ..jsontext import JsonAnswer
from ..problems import Conflict, Unauthorised
from ..route import Route
from . import PREFIX
from .asked import ResultQuery
from .naming import id_in
from .views import Result


async def read_result(call: Call) -> Response:
    asked: ResultQuery = call.query
    id = id_in(call)
    job = await _job(call, id)
    wait = min(asked.wait, call.service.settings.max_wait)
    if not job.final and wait > 0:
        await _wait(call, id, wait)
        job = await _job(call, id)
    if job.state is State.SUCCEEDED and job.forgotten:
        raise await call.ol.store.arun(erased, id)
    said = {"id": job.id, "state": job.state, "result": await _result(call, job)}
    return JsonAnswer({**said, "error": job.error}, 200 if job.final else 202)


async def take_result(call: Call) -> Response:
    """The result is in our hands before it is erased, and goes out after."""
    job = await _job(call, id_in(call))
    if job.state in (State.DEAD, State.CANCELLED):
        raise TooLate(job=job.id, state=job.state)
    result = await _result(call, job)
    store = call.ol.store
    blobs = await store.arun(ops.take_result, job.id, call.by, new_job_id(), call.reach)
    await aclear(call.ol.blobs, blobs)
    return JsonAnswer({"id": job.id, "state": job.state, "result": result, "error": job.error})


async def _result(call: Call, job: Job) -> Any:
    """What is kept by reference is given as long as it is no more than a request may be."""
    if not isinstance(job.result, Blob):
        return job.result
    size, most = job.result.size, call.service.settings.max_body
    if call.ol.blobs is None:
        raise Conflict(f"it is kept by reference ({size:,} bytes), and this service has no --blobs")
    if size > most:
        raise Conflict(f"it has {size:,} bytes, and {most:,} (max_body) are given: read the blob")
    return lenient_json(await asyncio.to_thread(call.ol.blobs.text, job.id, job.result))


async def _job(call: Call, id: str) -> Job:
    return await call.ol.store.arun(report.job, id, call.reach)


async def _wait(call: Call, id: str, seconds: float) -> None:
    """Until the job has ended, the time is up, the caller hangs up, or may wait no longer."""
    with call.service.waiters.slot(call.who):
        async with call.while_allowed() as over:
            ended = await _first(_ended(call, id, seconds), over.wait(), _hung_up(call.request))
            if over.is_set() and not ended:
                raise Unauthorised("this token is good no longer")


async def _ended(call: Call, id: str, seconds: float) -> None:
    with suppress(ResultTimeout, JobFailed):
        await call.ol._aended(id, seconds)


async def _hung_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _first(wanted: Coroutine[Any, Any, Any], *others: Coroutine[Any, Any, Any]) -> bool:
    """Whether the wanted one came first; what is left of the others is cancelled."""
    tasks = [asyncio.create_task(one) for one in (wanted, *others)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done():
            tasks[0].result()
        return tasks[0].done()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


ROUTES = (
    Route(
        "GET", f"{PREFIX}/jobs/{{id}}/result", Scope.READ, read_result,
        "A job's result; with `wait`, as soon as it has ended (202: it has not yet)",
        query=ResultQuery, response=Result, statuses=(404, 409, 410),
        pending="it has not ended yet",
    ),
    Route(
        "POST", f"{PREFIX}/jobs/{{id}}/take", Scope.ADMIN, take_result,
        "A job's result, which is forgotten as it is read: one caller gets it",
        response=Result, statuses=(404, 409, 410),
    ),
)  # fmt: skip
