"""How many jobs there are, counted now and then for whoever asks.

Counting reads every row, so it is done at most once in `snapshot_every` seconds, and never for more
than a tenth of the time: a count that took two seconds is good for twenty. Who asks meanwhile gets
the last one, with its age; who asks after a pause gets the next one if it is there in a moment, and
who asks when there is none waits for it. It has a connection of its own, so nothing else waits.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..model.errors import StoreError
from ..model.lifecycle import State
from ..model.unreadable import UNREADABLE
from ..ops.access import Access
from ..ops.search import ALL, JobQuery, KindCount, count_by_kind
from .problems import Unavailable
from .single_flight import SingleFlight, result_within

if TYPE_CHECKING:
    from .components import Service

COST_FACTOR = 10  # times as long as a count took is it good
RETRY_AFTER_S = 10.0  # seconds until it is tried again
STALE_LIVES = 3  # times its life: whoever asks then waits a moment for the next
REFRESH_WAIT_S = 0.3  # seconds


@dataclass(frozen=True, slots=True)
class JobCountsSnapshot:
    kinds: list[KindCount]
    taken_at: float  # monotonic
    fresh_for: float

    @property
    def age(self) -> float:
        return time.monotonic() - self.taken_at

    @property
    def is_stale(self) -> bool:
        """Whether nobody asked for a while."""
        return self.age > STALE_LIVES * self.fresh_for

    def of(self, reach: Access, job_filter: JobQuery = ALL) -> Iterable[KindCount]:
        """Those kinds that a caller may see and asks for."""
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
        self._last: JobCountsSnapshot | None = None
        self._retry_at = 0.0
        self._single_flight: SingleFlight[JobCountsSnapshot] = SingleFlight()

    @property
    def last(self) -> JobCountsSnapshot | None:
        """The last count, however old; nothing is counted for it."""
        return self._last

    async def snapshot(self) -> JobCountsSnapshot:
        last = self._last
        if last is not None and last.age < last.fresh_for:
            return last
        refresh = self._single_flight.start("census", self._count)
        if last is None:
            return await asyncio.shield(refresh)
        return last if not last.is_stale else await result_within(refresh, REFRESH_WAIT_S) or last

    async def snapshot_if_ready(self) -> JobCountsSnapshot | None:
        """The same for those who cannot wait long; None: it is not there yet."""
        if self._last is not None:
            return await self.snapshot()
        return await result_within(self._single_flight.start("census", self._count), REFRESH_WAIT_S)

    async def _count(self) -> JobCountsSnapshot:
        began = time.monotonic()
        if began < self._retry_at:
            raise Unavailable("the jobs could not be counted", self._retry_at - began)
        try:
            kinds = await self._service.slow_store.arun(count_by_kind)
        except StoreError:
            self._retry_at = time.monotonic() + RETRY_AFTER_S
            raise
        life = max(self._service.settings.snapshot_every, COST_FACTOR * (time.monotonic() - began))
        self._last = JobCountsSnapshot(kinds, began, life)
        return self._last


def by_state(kinds: Iterable[KindCount]) -> dict[str, int]:
    counts = {str(state): 0 for state in State}
    for kind in kinds:
        state = kind.state if kind.state in counts else str(UNREADABLE)
        counts[state] = counts.get(state, 0) + kind.number
    return counts
