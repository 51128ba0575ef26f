"""What people do to jobs: cancel, redrive, forget, reclaim, purge. Who did it is on record."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any

from ...connected import ANYWHERE
from ...model.bulk import REMOVED, BulkCount
from ...model.errors import JobNotFound, StoreError, TooLate
from ...model.ids import new_job_id
from ...model.job import Job
from ...model.lifecycle import State
from ...model.tokens import Scope
from ...ops import operate
from ...ops.bulk import purge_some, redrive_some
from ...ops.enqueue import CANCEL_SIGNAL, wake
from ...ops.forget import forget
from ...ops.search import Sought, search
from ...ops.seize import seize
from ...store.blobs import aclear
from ..calls import Call
from ..route import Route
from . import PREFIX
from .asked import CancelBody, PurgeBody, ReasonBody, RedriveBody
from .naming import id_in, limit_of, sought_in
from .views import BulkDone, JobView

FEW = 200  # jobs in one transaction


async def cancel_job(call: Call) -> dict[str, Any]:
    asked: ReasonBody = call.body
    job = await _cancel(call, id_in(call), asked.reason)
    if job.state is State.RUNNING:
        await tell(call, CANCEL_SIGNAL)
    return job.as_json()


async def redrive_job(call: Call) -> dict[str, Any]:
    job = await call.ol.store.arun(operate.redrive_one, id_in(call), call.by, call.reach)
    await tell(call, job.queue)
    return job.as_json()


async def forget_job(call: Call) -> dict[str, Any]:
    job, blobs = await call.ol.store.arun(forget, id_in(call), call.by, call.reach)
    await aclear(call.ol.blobs, blobs)
    return job.as_json()


async def reclaim_job(call: Call) -> dict[str, Any]:
    job = await call.ol.store.arun(seize, id_in(call), call.by, call.reach)
    await tell(call, CANCEL_SIGNAL, job.queue)  # its old owner should hear of it, and the next one
    return job.as_json()


async def cancel_jobs(call: Call) -> dict[str, Any]:
    asked: CancelBody = call.body
    done, asked_to_stop, left = 0, False, Counter[str]()
    page, cursor = await _page(call, sought_in(asked))
    live = [job for job in page if not job.final]
    for job in live:
        try:
            asked_to_stop |= (await _cancel(call, job.id, asked.reason)).state is State.RUNNING
            done += 1
        except TooLate as error:  # it ended meanwhile
            left[str(error.facts["state"])] += 1
        except JobNotFound:
            left[REMOVED] += 1
    if asked_to_stop:
        await tell(call, CANCEL_SIGNAL)
    return _told(len(live), BulkCount.of(done, left), cursor)


async def redrive_jobs(call: Call) -> dict[str, Any]:
    asked: RedriveBody = call.body
    page, cursor = await _page(call, sought_in(asked))
    done, action, left = set[str](), new_job_id(), Counter[str]()
    ids = [job.id for job in page]
    for start in range(0, len(ids), FEW):
        given = ids[start : start + FEW], asked.state, call.by, action, call.reach
        revived, some = await call.ol.store.arun(redrive_some, *given)
        done |= revived
        left += Counter(some.left)
    if done:
        await tell(call, ANYWHERE)
    return _told(len(ids), BulkCount.of(len(done), left, len(done.difference(ids))), cursor)


async def purge_jobs(call: Call) -> dict[str, Any]:
    asked: PurgeBody = call.body
    page, cursor = await _page(call, sought_in(asked))
    told = {"state": asked.state, "queue": asked.queue, "task": asked.task}
    counted = [BulkCount.of(0, {})]
    for start in range(0, len(page), FEW):
        ids = [job.id for job in page[start : start + FEW]]
        given = ids, asked.state, asked.older, call.by, told, call.reach
        gone, some = await call.ol.store.arun(purge_some, *given)
        await aclear(call.ol.blobs, gone.blobs)
        counted.append(some)
    return _told(len(page), BulkCount.sum(counted), cursor)


def _told(matched: int, done: BulkCount, cursor: str | None) -> dict[str, Any]:
    said = {"left": dict(done.left), "more": done.more}
    return {"done": int(done), "matched": matched, **said, "next": cursor}


async def _cancel(call: Call, id: str, reason: str) -> Job:
    return await call.ol.store.arun(operate.cancel, id, call.by, reason, call.reach)


async def _page(call: Call, sought: Sought) -> tuple[list[Job], str | None]:
    limit = limit_of(call.body.limit, 1000, call.service.settings.max_jobs)
    cursor = call.body.cursor
    return await call.ol.store.arun(search, sought, call.reach, cursor and str(cursor), limit)


async def tell(call: Call, *words: str) -> None:
    """A word to those who work: it only makes things faster, so it may fail."""
    if call.ol.store.wakes:
        with suppress(StoreError):
            await call.ol.store.arun(wake, call.ol.store.channel, words)


ROUTES = (
    Route(
        "POST", f"{PREFIX}/jobs/{{id}}/cancel", Scope.ADMIN, cancel_job,
        "Cancel a queued job, or ask a running one to stop",
        request=ReasonBody, response=JobView, statuses=(404, 409),
    ),
    Route(
        "POST", f"{PREFIX}/jobs/{{id}}/redrive", Scope.ADMIN, redrive_job,
        "Give a dead or cancelled job a new life", response=JobView, statuses=(404, 409),
    ),
    Route(
        "POST", f"{PREFIX}/jobs/{{id}}/forget", Scope.ADMIN, forget_job,
        "Erase what an ended job was given, gave and said; how it ended stays",
        response=JobView, statuses=(404, 409),
    ),
    Route(
        "POST", f"{PREFIX}/jobs/{{id}}/reclaim", Scope.ADMIN, reclaim_job,
        "Take a running job from its worker, and put it back unspent",
        response=JobView, statuses=(404, 409),
    ),
    Route(
        "POST", f"{PREFIX}/jobs/cancel", Scope.ADMIN, cancel_jobs,
        "Cancel the jobs that fit, so many in one request", request=CancelBody, response=BulkDone,
    ),
    Route(
        "POST", f"{PREFIX}/jobs/redrive", Scope.ADMIN, redrive_jobs,
        "Redrive the jobs that fit, so many in one request", request=RedriveBody, response=BulkDone,
    ),
    Route(
        "POST", f"{PREFIX}/jobs/purge", Scope.ADMIN, purge_jobs,
        "Remove ended jobs that fit, so many in one request", request=PurgeBody, response=BulkDone,
    ),
)  # fmt: skip
