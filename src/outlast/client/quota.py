"""Quotas for jobs of a caller's transaction: counted separately, before they are inserted."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..model.errors import QuotaExceeded
from ..model.ids import new_job_id
from ..model.job import NewJob
from ..model.lane import BY_TENANT, DEFAULT_LANE
from ..ops.quotas import Counts, count_jobs, keeps_its_snapshot, reserve, return_lapsed
from ..store.dialects import SQLITE
from .faces import Face
from .room import existing_ids


async def reserve_for_caller(
    on: Face, jobs: Sequence[NewJob], queues: Collection[str], conn: object
) -> str | None:
    """Count the jobs that a caller's transaction is about to insert; returns the reservation. None:
    they are counted within it. (SQLite has one writer, so no other producer would wait for the
    counter. A transaction with one snapshot for all statements would not see the reservation.)"""
    if on.store.address.dialect == SQLITE or await on.run_on(conn, keeps_its_snapshot()):
        return None
    keyed = [job for job in jobs if job.key is not None]
    existing = (await existing_ids(on, keyed, conn)) if keyed else set()
    counts = _expected(on, [job for job in jobs if job.id not in existing], queues)
    if not counts:
        return None
    reservation = new_job_id()
    try:
        await on.run(reserve, counts, reservation)
    except QuotaExceeded:
        if not await on.run(return_lapsed):
            raise
        await on.run(reserve, counts, reservation)
    return reservation


def _expected(on: Face, jobs: Sequence[NewJob], queues: Collection[str]) -> Counts:
    """Counts by the lanes that jobs will have, as far as this process knows. Where these are wrong,
    jobs are counted within the caller's transaction."""
    declared = on.parts.declared_queues

    def lane(job: NewJob) -> str | None:
        limits = declared.get(job.queue)
        if job.lane is not None or limits is None or not limits.limited:
            return job.lane
        return job.tenant if limits.lane == BY_TENANT else DEFAULT_LANE

    return count_jobs([(job.queue, lane(job)) for job in jobs], queues)
