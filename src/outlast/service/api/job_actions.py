"""Operator actions on jobs: cancel, redrive, forget, reclaim, purge. The actor is recorded."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

from ...client.verb_arguments import ANY_QUEUE
from ...model.api_token import Scope
from ...model.bulk_count import REMOVED, BulkCount
from ...model.errors import JobNotFound, StoreError, TooLate
from ...model.ids import new_job_id
from ...model.job import Job
from ...model.job_change import JobChange
from ...model.lifecycle import State
from ...ops import job_actions
from ...ops.bulk import change_some, purge_some, redrive_some
from ...ops.enqueue import CANCEL_SIGNAL, notify_queues
from ...ops.erase import erase
from ...ops.force_release import force_release
from ...ops.search import JobQuery, search
from ...store.blobs.store import adelete_blobs
from ..problems import Forbidden
from ..request import RequestContext
from ..route import Route
from ..tenant_lanes import refuse_foreign_lanes
from . import PREFIX
from .params import filter_of, job_id_of, limit_of
from .request_models import (
    CancelBody,
    MoveBody,
    PrioritizeBody,
    PurgeBody,
    ReasonBody,
    RedriveBody,
    RescheduleBody,
)
from .response_models import BulkDone, JobView

TRANSACTION_SIZE = 200  # jobs per transaction


async def cancel_job(call: RequestContext) -> dict[str, object]:
    body: ReasonBody = call.body
    job = await _cancel(call, job_id_of(call), body.reason)
    if job.state is State.RUNNING:
        await notify_workers(call, CANCEL_SIGNAL)
    return job.as_json()


async def redrive_job(call: RequestContext) -> dict[str, object]:
    job = await call.ol.store.arun(job_actions.redrive_one, job_id_of(call), call.by, call.reach)
    await notify_workers(call, job.queue)
    return job.as_json()


async def forget_job(call: RequestContext) -> dict[str, object]:
    job, blobs = await call.ol.store.arun(erase, job_id_of(call), call.by, call.reach)
    await adelete_blobs(call.ol.blobs, blobs)
    return job.as_json()


async def reclaim_job(call: RequestContext) -> dict[str, object]:
    job = await call.ol.store.arun(force_release, job_id_of(call), call.by, call.reach)
    await notify_workers(call, CANCEL_SIGNAL, job.queue)  # the old owner, and the next one
    return job.as_json()


async def cancel_jobs(call: RequestContext) -> dict[str, object]:
    body: CancelBody = call.body
    done, asked_to_stop, left = 0, False, Counter[str]()
    page, cursor = await _page(call, filter_of(body))
    live = [job for job in page if not job.final]
    for job in live:
        try:
            asked_to_stop |= (await _cancel(call, job.id, body.reason)).state is State.RUNNING
            done += 1
        except TooLate as error:  # it has ended in the meantime
            left[str(error.facts["state"])] += 1
        except JobNotFound:
            left[REMOVED] += 1
    if asked_to_stop:
        await notify_workers(call, CANCEL_SIGNAL)
    return _bulk_response(len(live), BulkCount.of(done, left), cursor)


async def redrive_jobs(call: RequestContext) -> dict[str, object]:
    body: RedriveBody = call.body
    page, cursor = await _page(call, filter_of(body))
    done, action, left = set[str](), new_job_id(), Counter[str]()
    ids = [job.id for job in page]
    for start in range(0, len(ids), TRANSACTION_SIZE):
        arguments = ids[start : start + TRANSACTION_SIZE], body.state, call.by, action, call.reach
        revived, some = await call.ol.store.arun(redrive_some, *arguments)
        done |= revived
        left += Counter(some.left)
    if done:
        await notify_workers(call, ANY_QUEUE)
    return _bulk_response(
        len(ids), BulkCount.of(len(done), left, len(done.difference(ids))), cursor
    )


async def purge_jobs(call: RequestContext) -> dict[str, object]:
    body: PurgeBody = call.body
    page, cursor = await _page(call, filter_of(body))
    criteria = {"state": body.state, "queue": body.queue, "task": body.task}
    counted = [BulkCount.of(0, {})]
    for start in range(0, len(page), TRANSACTION_SIZE):
        ids = [job.id for job in page[start : start + TRANSACTION_SIZE]]
        arguments = ids, body.state, body.older, call.by, criteria, call.reach
        gone, some = await call.ol.store.arun(purge_some, *arguments)
        await adelete_blobs(call.ol.blobs, gone.blobs)
        counted.append(some)
    return _bulk_response(len(page), BulkCount.sum(counted), cursor)


async def reschedule_jobs(call: RequestContext) -> dict[str, object]:
    body: RescheduleBody = call.body
    return await _change(call, JobChange.reschedule(body.delay, body.at))


async def prioritize_jobs(call: RequestContext) -> dict[str, object]:
    body: PrioritizeBody = call.body
    return await _change(call, JobChange.prioritize(body.priority))


async def move_jobs(call: RequestContext) -> dict[str, object]:
    body: MoveBody = call.body
    change = JobChange.move(body.to, body.lane)
    await check_move(call, body.queue, body.to, body.lane)
    return await _change(call, change)


async def check_move(
    call: RequestContext, queue: str | None, to: str | None, lane: str | None
) -> None:
    """Refuse a move to a queue out of reach, or to another tenant's lane."""
    if to is not None and not call.who.can_access(to):
        raise Forbidden(f"this token has no access to the queue {to!r}")
    if queue is not None and lane is not None:
        await refuse_foreign_lanes(call.ol.store, call.who.tenant, [(queue, lane)])


async def _change(call: RequestContext, change: JobChange) -> dict[str, object]:
    body = call.body
    change.check_source(body.queue)
    page, cursor = await _page(call, filter_of(body))
    counted = [BulkCount.of(0, {})]
    for start in range(0, len(page), TRANSACTION_SIZE):
        ids = [job.id for job in page[start : start + TRANSACTION_SIZE]]
        arguments = ids, body.state, change, call.by, call.reach
        counted.append(await call.ol.store.arun(change_some, *arguments))
    done = BulkCount.sum(counted)
    if done:
        await notify_workers(call, ANY_QUEUE)
    return _bulk_response(len(page), done, cursor)


def _bulk_response(matched: int, done: BulkCount, cursor: str | None) -> dict[str, object]:
    details = {"left": dict(done.left), "more": done.more}
    return {"done": int(done), "matched": matched, **details, "next": cursor}


async def _cancel(call: RequestContext, id: str, reason: str) -> Job:
    return await call.ol.store.arun(job_actions.cancel, id, call.by, reason, call.reach)


async def _page(call: RequestContext, job_filter: JobQuery) -> tuple[list[Job], str | None]:
    limit = limit_of(call.body.limit, 1000, call.service.settings.max_jobs)
    cursor = call.body.cursor
    return await call.ol.store.arun(search, job_filter, call.reach, cursor and str(cursor), limit)


async def notify_workers(call: RequestContext, *channels: str) -> None:
    """Notify workers, best effort: without the notification they poll."""
    if call.ol.store.can_notify:
        with suppress(StoreError):
            await call.ol.store.arun(notify_queues, call.ol.store.channel, channels)


ROUTES = (
    Route(
        "POST", f"{PREFIX}/jobs/{{id}}/cancel", Scope.ADMIN, cancel_job,
        "Cancel a queued job, or ask a running one to stop",
        request=ReasonBody, response=JobView, statuses=(404, 409),
    ),
    Route(
        "POST", f"{PREFIX}/jobs/{{id}}/redrive", Scope.ADMIN, redrive_job,
        "Redrive a dead or cancelled job", response=JobView, statuses=(404, 409),
    ),
    Route(
        "POST", f"{PREFIX}/jobs/{{id}}/forget", Scope.ADMIN, forget_job,
        "Erase the data of an ended job; its times, state and key stay",
        response=JobView, statuses=(404, 409),
    ),
    Route(
        "POST", f"{PREFIX}/jobs/{{id}}/reclaim", Scope.ADMIN, reclaim_job,
        "Reclaim a running job from its worker, without spending an attempt",
        response=JobView, statuses=(404, 409),
    ),
    Route(
        "POST", f"{PREFIX}/jobs/cancel", Scope.ADMIN, cancel_jobs,
        "Cancel matching jobs, up to `limit` per request", request=CancelBody, response=BulkDone,
    ),
    Route(
        "POST", f"{PREFIX}/jobs/redrive", Scope.ADMIN, redrive_jobs,
        "Redrive matching jobs, up to `limit` per request", request=RedriveBody, response=BulkDone,
    ),
    Route(
        "POST", f"{PREFIX}/jobs/purge", Scope.ADMIN, purge_jobs,
        "Remove matching jobs, up to `limit` per request", request=PurgeBody, response=BulkDone,
    ),
    Route(
        "POST", f"{PREFIX}/jobs/reschedule", Scope.ADMIN, reschedule_jobs,
        "Reschedule matching jobs, up to `limit` per request",
        request=RescheduleBody, response=BulkDone,
    ),
    Route(
        "POST", f"{PREFIX}/jobs/prioritize", Scope.ADMIN, prioritize_jobs,
        "Change the priority of matching jobs, up to `limit` per request",
        request=PrioritizeBody, response=BulkDone,
    ),
    Route(
        "POST", f"{PREFIX}/jobs/move", Scope.ADMIN, move_jobs,
        "Move matching jobs to another queue or lane, up to `limit` per request",
        request=MoveBody, response=BulkDone,
    ),
)  # fmt: skip
