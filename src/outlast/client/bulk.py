"""Verbs for all jobs that match a filter: redrive, remove, reschedule, prioritize or move them.
They use small transactions: after an interruption, call the verb again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from ..model.bulk_count import BulkCount
from ..model.ids import new_job_id
from ..model.job_change import JobChange
from ..model.lifecycle import REDRIVABLE, State
from ..model.options import seconds
from ..ops.bulk import change_some, purge_some, redrive_some
from ..ops.report import Filter
from .faces import Face
from .verb_arguments import ANY_QUEUE, actor, job_filter

Pages = AsyncIterator[Sequence[str]]  # pages of job ids


class PurgeRequest(NamedTuple):
    which: Filter
    selection: dict[str, str | None]  # the filter, as recorded
    min_age_s: float  # seconds since the end of a job


async def retry_all(
    on: Face,
    *,
    state: str = "dead",
    queue: str | None = None,
    task: str | None = None,
    tenant: str | None = None,
) -> BulkCount:
    """Redrive all matching jobs, in small transactions; if interrupted, call it again. Returns how
    many, and why other matching jobs were left alone."""
    which = job_filter(state, queue, task, tenant, REDRIVABLE)
    return await _retry(on, on.pages(which), state)


async def purge(
    on: Face,
    *,
    state: str = "dead",
    queue: str | None = None,
    task: str | None = None,
    tenant: str | None = None,
    older: float = 0.0,
) -> BulkCount:
    """Remove matching jobs that ended at least `older` seconds ago, in small transactions; if
    interrupted, call it again. Jobs that a flow still needs stay. Returns how many, and why other
    matching jobs were left alone."""
    request = purge_request(state, queue, task, tenant, older)
    return await _purge(on, on.pages(request.which), request)


async def reschedule_all(  # noqa: PLR0913 - a time in two forms, and the filter
    on: Face,
    *,
    delay: float | timedelta | None = None,
    at: datetime | None = None,
    state: str = "scheduled",
    queue: str | None = None,
    task: str | None = None,
    tenant: str | None = None,
) -> BulkCount:
    """Move the start of all matching jobs: `delay` seconds from now, or `at`. `state` is
    `scheduled` or `ready`. Returns how many, and why other matching jobs were left alone."""
    change = JobChange.reschedule(delay, at)
    which = change_filter(change, state, queue, task, tenant)
    return await _change(on, on.pages(which), state, change)


async def prioritize_all(
    on: Face,
    priority: int,
    *,
    state: str = "ready",
    queue: str | None = None,
    task: str | None = None,
    tenant: str | None = None,
) -> BulkCount:
    """Give all matching jobs another priority. `state` is `waiting`, `scheduled` or `ready`."""
    change = JobChange.prioritize(priority)
    which = change_filter(change, state, queue, task, tenant)
    return await _change(on, on.pages(which), state, change)


async def move_all(  # noqa: PLR0913 - a target in two forms, and the filter
    on: Face,
    to: str | None = None,
    *,
    queue: str,
    lane: str | None = None,
    state: str = "ready",
    task: str | None = None,
    tenant: str | None = None,
) -> BulkCount:
    """Move all matching jobs of a queue to the queue `to`, or to another `lane` of their queue.
    Jobs whose keys are taken there stay."""
    change = JobChange.move(to, lane)
    which = change_filter(change, state, queue, task, tenant)
    return await _change(on, on.pages(which), state, change)


def change_filter(
    change: JobChange, state: str, queue: str | None, task: str | None, tenant: str | None
) -> Filter:
    """Check that a change applies to jobs in these states, and select the jobs."""
    change.check_source(queue)
    return job_filter(state, queue, task, tenant, change.states)


def purge_request(
    state: str, queue: str | None, task: str | None, tenant: str | None, older: float
) -> PurgeRequest:
    which = job_filter(state, queue, task, tenant, [one for one in State if one.final])
    selection = {"state": str(state), "queue": queue, "task": task, "tenant": tenant}
    return PurgeRequest(which, selection, seconds("older", older) or 0.0)


async def find_pages(on: Face, which: Filter) -> list[list[str]]:
    """The ids of all matching jobs, for one of the two verbs below once they are counted."""
    return [ids async for ids in on.pages(which)]


async def retry_pages(on: Face, pages: Iterable[Sequence[str]], state: str) -> BulkCount:
    return await _retry(on, _each(pages), state)


async def purge_pages(on: Face, pages: Iterable[Sequence[str]], request: PurgeRequest) -> BulkCount:
    return await _purge(on, _each(pages), request)


async def change_pages(
    on: Face, pages: Iterable[Sequence[str]], state: str, change: JobChange
) -> BulkCount:
    return await _change(on, _each(pages), state, change)


async def _retry(on: Face, pages: Pages, state: str) -> BulkCount:
    action, done, counted = new_job_id(), set[str](), [BulkCount.of(0, {})]
    async for ids in pages:
        revived, some = await on.run(redrive_some, ids, state, actor(), action)
        counted.append(_count_new(some, revived, ids, done))
    await on.notify([ANY_QUEUE] if done else [])
    return BulkCount.sum(counted)


async def _purge(on: Face, pages: Pages, request: PurgeRequest) -> BulkCount:
    which, selection, min_age_s = request
    counted = [BulkCount.of(0, {})]
    async for ids in pages:
        gone, some = await on.run(purge_some, ids, str(which.state), min_age_s, actor(), selection)
        await on.delete_blobs(gone.blobs)
        counted.append(some)
    return BulkCount.sum(counted)


async def _change(on: Face, pages: Pages, state: str, change: JobChange) -> BulkCount:
    counted = [BulkCount.of(0, {})]
    async for ids in pages:
        counted.append(await on.run(change_some, ids, state, change, actor()))
    done = BulkCount.sum(counted)
    await on.notify([ANY_QUEUE] if done else [])
    return done


def _count_new(some: BulkCount, revived: set[str], ids: Sequence[str], done: set[str]) -> BulkCount:
    """A page's count without the jobs that were done with an earlier page; adds to `done`."""
    new = revived - done
    done |= new
    return BulkCount.of(len(new), some.left, len(new.difference(ids)))


async def _each(pages: Iterable[Sequence[str]]) -> Pages:
    for ids in pages:
        yield ids
