"""Job counts, cached for all callers.

Counting reads every row, so it runs at most once in `snapshot_every` seconds, and for at most a
tenth of the time: a count that took two seconds is fresh for twenty. It has a connection of its
own, so that it delays nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..cached import Cached, Snapshot
from ..model.errors import StoreError
from ..model.lifecycle import State
from ..model.unreadable import UNREADABLE
from ..ops.access import Access
from ..ops.search import ALL, JobQuery, KindCount, count_by_kind
from .problems import Unavailable

if TYPE_CHECKING:
    from .components import Service

RETRY_AFTER_S = 10.0  # after a failed count
READY_WAIT_S = 0.3  # for the first count, for callers that cannot wait long


@dataclass(slots=True)
class JobCountsSnapshot(Snapshot):
    kinds: list[KindCount]

    def of(self, reach: Access, job_filter: JobQuery = ALL) -> Iterable[KindCount]:
        """The requested counts that a caller may see."""
        criteria = [
            ("state", job_filter.state),
            ("queue", job_filter.queue),
            ("task", job_filter.task),
        ]
        for kind in self.kinds:
            if reach.allows(kind.tenant, kind.queue) and all(
                value in (None, getattr(kind, name)) for name, value in criteria
            ):
                yield kind


class JobCounts:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._retry_at = 0.0
        self.cached = Cached(self._count, service.settings.snapshot_every)

    @property
    def last(self) -> JobCountsSnapshot | None:
        """The last count, however old, without a new one."""
        return self.cached.last

    async def snapshot(self) -> JobCountsSnapshot:
        return await self.cached.latest()

    async def snapshot_if_ready(self) -> JobCountsSnapshot | None:
        """The snapshot for callers that cannot wait long; None: no count yet."""
        if self.last is not None:
            return await self.snapshot()
        return await self.cached.latest_within(READY_WAIT_S)

    async def _count(self) -> JobCountsSnapshot:
        if (now := time.monotonic()) < self._retry_at:
            raise Unavailable("the jobs could not be counted", self._retry_at - now)
        try:
            return JobCountsSnapshot(await self._service.slow_store.arun(count_by_kind))
        except StoreError:
            self._retry_at = time.monotonic() + RETRY_AFTER_S
            raise


def by_state(kinds: Iterable[KindCount]) -> dict[str, int]:
    counts = {str(state): 0 for state in State}
    for kind in kinds:
        state = kind.state if kind.state in counts else str(UNREADABLE)
        counts[state] = counts.get(state, 0) + kind.number
    return counts
