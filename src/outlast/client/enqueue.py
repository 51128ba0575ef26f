"""Enqueue jobs in our own transaction or the caller's, and notify workers."""

from __future__ import annotations

from functools import partial

from ..model.admission import Admission
from ..model.errors import StoreError
from ..model.job import Job, NewJob
from ..model.lifecycle import State
from ..ops.admission import enqueue_bounded
from ..ops.enqueue import enqueue, enqueue_one, insert_messages, notify_queues
from ..ops.enqueue_many import can_copy, enqueue_many
from ..ops.operation import BEGIN, Op
from ..ops.quotas import enqueue_in_quota
from ..store import Store
from ..store.caller.connection import can_copy_on
from ..store.notify_limiter import NotifyLimiter
from ..tracing import enqueuing, traced, tracer
from .faces import Face
from .limits import declare_queues
from .quota import reserve_for_caller
from .resources import ClientResources
from .room import make_room


async def enqueue_jobs(on: Face, jobs: list[NewJob], conn: object = None) -> list[Job]:
    """Enqueue jobs as part of the current trace, if any."""
    if (check := on.parts.check_tenants) is not None:
        check(jobs)
    conn = on.ambient(conn)
    if (recorder := tracer()) is None:
        return await insert_jobs(on, traced(jobs), conn)
    with enqueuing(recorder, jobs) as sent:
        return await insert_jobs(on, sent, conn)


async def insert_jobs(on: Face, jobs: list[NewJob], conn: object) -> list[Job]:
    parts = on.parts
    if conn is not None:
        await on.ready_beside_caller()
    if parts.blobs is not None and parts.blobs.any_large(jobs):
        jobs = await on.in_thread(partial(parts.blobs.put_arguments, jobs))
    if conn is None or parts.bounded_queues or parts.quota_queues:
        await declare_queues(on)
    full = (await make_room(on, jobs, conn)) if parts.bounded_queues else []
    counted = parts.quota_queues and parts.quota_queues.intersection(job.queue for job in jobs)
    if conn is not None:
        if not counted and not full and can_copy(jobs) and can_copy_on(conn):
            return await _copy_on(on, conn, jobs)
        reserved = (await reserve_for_caller(on, jobs, counted, conn)) if counted else None
        return await on.run_on(conn, _insert_and_notify(on, jobs, full, counted, reserved))
    if counted:
        made = await on.run(enqueue_in_quota, jobs, full, counted)
    elif full:
        made = await on.run(enqueue_bounded, jobs, full)
    elif len(jobs) == 1 and jobs[0].is_plain:
        if _notifies_at_once(parts, jobs[0]):
            return [await _insert_and_notify_at_once(on, jobs[0])]
        made = [await on.run(enqueue_one, jobs[0])]
    elif parts.store.can_copy and can_copy(jobs):
        made = await _copy(on, jobs)
    else:
        made = await on.run(enqueue, jobs)
    await on.notify(_queues_to_notify(parts.store, made, parts.notify_limiter))
    return made


def _notifies_at_once(parts: ClientResources, job: NewJob) -> bool:
    """Whether the statement that inserts a job should notify workers, too: the job will be new, and
    no notification was sent for a while."""
    return parts.store.can_notify and job.key is None and parts.notify_limiter.is_quiet(job.queue)


async def _insert_and_notify_at_once(on: Face, job: NewJob) -> Job:
    try:
        made = await on.run(enqueue_one, job, on.store.channel)
    except StoreError as error:
        if not error.facts.get("refused"):
            raise
        # Perhaps the notification was refused: the server's queue may be full.
        return await on.run(enqueue_one, job)
    on.parts.notify_limiter.sent(job.queue)
    return made


async def _copy(on: Face, jobs: list[NewJob]) -> list[Job]:
    try:
        return await on.run(enqueue_many, jobs)
    except StoreError as error:
        if not is_copy_refused(error):
            raise
        return await on.run(enqueue, jobs)


async def _copy_on(on: Face, conn: object, jobs: list[NewJob]) -> list[Job]:
    try:
        return await on.run_on(conn, _notifying(on, enqueue_many(jobs)))
    except StoreError as error:
        if not is_copy_refused(error):
            raise
        return await on.run_on(conn, _notifying(on, _insert_under_savepoint(jobs)))


def _insert_under_savepoint(jobs: list[NewJob]) -> Op[list[Job]]:
    yield BEGIN  # the retry may be refused, too
    return (yield from enqueue(jobs, ours=False))


def is_copy_refused(error: StoreError) -> bool:
    """Whether an INSERT may work where a COPY did not: the jobs exist already, because the response
    to a first try was lost, or the table has row-level security."""
    unsupported = getattr(error.__cause__, "sqlstate", None) == "0A000"
    return unsupported or bool(error.facts.get("refused"))


async def receive_jobs(on: Face, jobs: list[NewJob]) -> set[str]:
    """Insert the jobs of messages, each once; returns the ids of the new ones. They are durable
    when this returns. Their source checks the limits of its queue before it asks for messages."""
    parts = on.parts
    if parts.blobs is not None and parts.blobs.any_large(jobs):
        jobs = await on.in_thread(partial(parts.blobs.put_arguments, jobs))
    await declare_queues(on)
    made = await on.run(insert_messages, jobs)
    if made and parts.store.can_notify:
        await on.notify(parts.notify_limiter.due({job.queue for job in jobs}))
    return made


def _insert_and_notify(
    on: Face, jobs: list[NewJob], full: list[Admission], counted: set[str], reserved: str | None
) -> Op[list[Job]]:
    if counted:
        op = enqueue_in_quota(jobs, full, counted, reserved, ours=False)
    elif full:
        op = enqueue_bounded(jobs, full, ours=False)
    else:
        op = enqueue(jobs, ours=False)
    return (yield from _notifying(on, op))


def _notifying(on: Face, op: Op[list[Job]]) -> Op[list[Job]]:
    made = yield from op
    if queues := _queues_to_notify(on.store, made, on.parts.tx_notify_limiter):
        yield from notify_queues(on.store.channel, queues)
    return made


def _queues_to_notify(store: Store, jobs: list[Job], limiter: NotifyLimiter) -> list[str]:
    if not store.can_notify:
        return []
    return limiter.due({job.queue for job in jobs if job.state is State.READY})
