"""Limit of the queue names of one tenant: each name has a cost for every worker.

A name counts while it has unfinished jobs. Usually an enqueue is a dictionary look-up: a recently
used name is accepted. Counting reads every row, and counts are cached, so an enqueue requests a
count only if the limit would be exceeded, by the last count and the names accepted since, or if
more than a tenth of the limit is uncounted. So the limit is soft: after a start, and with several
servers, each may accept a tenth more.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..model.errors import StoreError
from ..model.job import NewJob
from ..model.lifecycle import QUEUED, State
from .problems import Conflict, Unavailable

if TYPE_CHECKING:
    from .job_counts import JobCounts, JobCountsSnapshot

RECENT_FOR_S = 60.0  # until an accepted name is checked again
MAX_CACHED = 100_000  # names of all tenants
UNCOUNTED_FRACTION = 10  # one in 10 names of the limit is accepted without a count

UNFINISHED = frozenset(map(str, (*QUEUED, State.RUNNING)))


class TooManyQueues(Conflict):
    kind = "too-many-queues"


class QueueNames:
    def __init__(self, job_counts: JobCounts, limit: int) -> None:
        self._job_counts = job_counts
        self._limit = limit
        self._uncounted = limit // UNCOUNTED_FRACTION
        self._recent: defaultdict[str, dict[str, float]] = defaultdict(dict)  # by tenant

    async def admit(self, jobs: Iterable[NewJob]) -> None:
        """Refuse jobs if their tenant would have too many queues."""
        now = time.monotonic()
        fresh: defaultdict[str, set[str]] = defaultdict(set)
        for job in jobs:
            if self._recent[job.tenant].get(job.queue, 0.0) < now:
                fresh[job.tenant].add(job.queue)
        for tenant, names in fresh.items():
            await self._look_up(tenant, names)

    async def _look_up(self, tenant: str, names: set[str]) -> None:
        counted, since = self._used(tenant, self._job_counts.last)
        added = (since | names) - counted
        if len(added) > self._uncounted or len(counted | added) > self._limit:
            await self._count(tenant, names)
        if sum(map(len, self._recent.values())) > MAX_CACHED:
            self._recent.clear()
            self._uncounted = 0  # names accepted since the last count are no longer known
        until = time.monotonic() + RECENT_FOR_S
        self._recent[tenant] |= dict.fromkeys(names, until)

    async def _count(self, tenant: str, names: set[str]) -> None:
        try:
            last = await self._job_counts.snapshot_if_ready()
        except (StoreError, Unavailable):
            last = None
        if last is None:
            return  # not counted yet: accepted, and the next name is checked again
        used = set().union(*self._used(tenant, last))
        if names - used and len(used | names) > self._limit:
            raise TooManyQueues(
                f"this tenant has unfinished jobs in {len(used):,} queues, the limit is"
                f" {self._limit:,} (max_queues): use fewer names, or wait until jobs are finished"
            )

    def _used(self, tenant: str, last: JobCountsSnapshot | None) -> tuple[set[str], set[str]]:
        """The names in a count, and the names accepted since."""
        recent = self._recent[tenant]
        if last is None:
            return set(), set(recent)
        counted = {k.queue for k in last.kinds if k.tenant == tenant and k.state in UNFINISHED}
        return counted, {
            name for name, until in recent.items() if until - RECENT_FOR_S >= last.taken_at
        }
