"""Verbs for single jobs and lists of jobs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from ..model.blob import Blob
from ..model.errors import BlobError
from ..model.job import Job, lenient_json, read_args
from ..model.lifecycle import State
from ..ops import erase, job_actions, report
from ..ops import explain as explaining
from ..ops.cancel_requests import cancel_in_transaction
from ..ops.enqueue import CANCEL_SIGNAL
from ..ops.force_release import force_release
from ..ops.report import Attempt, Event
from ..store.blobs.store import Blobs
from .faces import Face
from .verb_arguments import actor, check_limit, check_reason, job_filter, job_id


async def job(on: Face, id: str) -> Job:
    """A job's current state, complete. (Lists show a `Blob` for a payload that is stored by
    reference, and so does this verb if the payload cannot be loaded.)"""
    found = await on.run(report.job, job_id(id))
    blobs = on.parts.blobs
    if blobs is None or not (isinstance(found.args, Blob) or isinstance(found.result, Blob)):
        return found
    return await on.in_thread(lambda: _with_payloads(found, blobs))


def _with_payloads(job: Job, blobs: Blobs) -> Job:
    with suppress(BlobError):  # showing a job must not fail
        if isinstance(job.args, Blob):
            job = replace(job, args=read_args(blobs.text(job.id, job.args)))
        if isinstance(job.result, Blob):
            job = replace(job, result=lenient_json(blobs.text(job.id, job.result)))
    return job


async def jobs(  # noqa: PLR0913 - a filter and a page
    on: Face,
    *,
    state: str | None = None,
    queue: str | None = None,
    task: str | None = None,
    tenant: str | None = None,
    before: str | None = None,
    limit: int = 1000,
) -> list[Job]:
    """Jobs, newest first. For the next page, pass the last one's id as `before`."""
    which = job_filter(state, queue, task, tenant)
    return await on.run(report.jobs, which, before and job_id(before), check_limit(limit))


async def counts(on: Face) -> dict[str, int]:
    """The number of jobs in each state."""
    return await on.run(report.counts)


async def history(on: Face, id: str) -> tuple[list[Attempt], list[Event]]:
    """A job's attempts (empty if the first one succeeded), and its events; of more than a thousand,
    the latest."""
    return await on.run(report.history, job_id(id))


async def explain(on: Face, id: str) -> str:
    """An explanation as text: what the job waits for, or how it ended."""
    return await on.run(explaining.explain, job_id(id), on.store.confirm_dead)


async def cancel(on: Face, id: str, reason: str = "", *, conn: object = None) -> Job:
    """Cancel a queued job, or ask a running one to stop. Cancelling twice is one cancel. With the
    caller's own connection, it happens if and when that transaction commits; the worker of a
    running job is notified within a second after that."""
    reason = check_reason(reason)
    if (conn := on.ambient(conn)) is not None:
        return await on.act_on(conn, cancel_in_transaction(job_id(id), actor(), reason))
    job = await on.run(job_actions.cancel, job_id(id), actor(), reason)
    await on.notify([CANCEL_SIGNAL] if job.state is State.RUNNING else [])
    return job


async def retry(on: Face, id: str, *, conn: object = None) -> Job:
    """Redrive a dead or cancelled job: it runs again with all budgets full. With the caller's own
    connection, it happens if and when that transaction commits."""
    if (conn := on.ambient(conn)) is not None:
        op = job_actions.redrive_one(job_id(id), actor(), ours=False)
        return await on.act_on(conn, op, lambda job: [job.queue])
    job = await on.run(job_actions.redrive_one, job_id(id), actor())
    await on.notify([job.queue])
    return job


async def reclaim(on: Face, id: str) -> Job:
    """Release a running job from its worker; the attempt is not counted. The worker is notified,
    and its outcome for the job is refused."""
    job = await on.run(force_release, job_id(id), actor())
    await on.notify([CANCEL_SIGNAL, job.queue])
    return job


async def forget(on: Face, id: str) -> Job:
    """Erase an ended job's arguments, result and messages; its final state stays."""
    job, blobs = await on.run(erase.erase, job_id(id), actor())
    await on.delete_blobs(blobs)
    return job
