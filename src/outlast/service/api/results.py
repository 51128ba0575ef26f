"""Results of jobs, with long polling. One thread polls the database for all waiting callers."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress

from starlette.responses import Response

from ...model.api_token import Scope
from ...model.blob import Blob
from ...model.errors import JobFailed, ResultTimeout, TooLate
from ...model.ids import new_job_id
from ...model.job import Job, lenient_json
from ...model.lifecycle import State
from ...ops import erase as ops
from ...ops import report
from ...ops.erase import erased_error
from ...store.blobs.store import adelete_blobs
from ..json_response import JsonResponse
from ..problems import Conflict, Unauthorised
from ..request import RequestContext
from ..route import Route
from ..streaming import disconnected
from . import PREFIX
from .params import job_id_of
from .request_models import ResultQuery
from .response_models import Result


async def read_result(call: RequestContext) -> Response:
    params: ResultQuery = call.query
    id = job_id_of(call)
    job = await _job(call, id)
    wait = min(params.wait, call.service.settings.max_wait)
    if not job.final and wait > 0:
        await _wait(call, id, wait)
        job = await _job(call, id)
    if job.state is State.SUCCEEDED and job.forgotten:
        raise await call.ol.store.arun(erased_error, id)
    content = {"id": job.id, "state": job.state, "result": await _result(call, job)}
    return JsonResponse({**content, "error": job.error}, 200 if job.final else 202)


async def take_result(call: RequestContext) -> Response:
    """Read the result, erase it, then send it."""
    job = await _job(call, job_id_of(call))
    if job.state in (State.DEAD, State.CANCELLED):
        raise TooLate(job=job.id, state=job.state)
    result = await _result(call, job)
    store = call.ol.store
    blobs = await store.arun(ops.take_result, job.id, call.by, new_job_id(), call.reach)
    await adelete_blobs(call.ol.blobs, blobs)
    return JsonResponse({"id": job.id, "state": job.state, "result": result, "error": job.error})


async def _result(call: RequestContext, job: Job) -> object:
    """The result. A result stored by reference is read unless it exceeds the limit of a body."""
    if not isinstance(job.result, Blob):
        return job.result
    size, limit = job.result.size, call.service.settings.max_body
    if call.ol.blobs is None:
        raise Conflict(
            f"result is stored as a blob ({size:,} bytes), and this service has no --blobs"
        )
    if size > limit:
        raise Conflict(f"result has {size:,} bytes, over the {limit:,} of max_body: read the blob")
    return lenient_json(await asyncio.to_thread(call.ol.blobs.text, job.id, job.result))


async def _job(call: RequestContext, id: str) -> Job:
    return await call.ol.store.arun(report.job, id, call.reach)


async def _wait(call: RequestContext, id: str, seconds: float) -> None:
    """Wait until the job ends, the time is up, the caller disconnects, or its token is revoked."""
    with call.service.waiters.slot(call.who):
        async with call.while_allowed() as revoked:
            ended = await _finishes_first(
                _ended(call, id, seconds), revoked.wait(), disconnected(call.request.receive)
            )
            if revoked.is_set() and not ended:
                raise Unauthorised("this token is no longer valid")


async def _ended(call: RequestContext, id: str, seconds: float) -> None:
    with suppress(ResultTimeout, JobFailed):
        await call.ol._aoutcome(id, seconds)


async def _finishes_first(
    main: Coroutine[object, object, object], *others: Coroutine[object, object, object]
) -> bool:
    """Whether `main` finished first; the remaining coroutines are cancelled."""
    tasks = [asyncio.create_task(one) for one in (main, *others)]
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
        "A job's result; with `wait`, as soon as the job ends (202: not ended yet)",
        query=ResultQuery, response=Result, statuses=(404, 409, 410),
        pending="the job has not ended yet",
    ),
    Route(
        "POST", f"{PREFIX}/jobs/{{id}}/take", Scope.ADMIN, take_result,
        "Read and erase a job's result: only one caller receives it",
        response=Result, statuses=(404, 409, 410),
    ),
)  # fmt: skip
