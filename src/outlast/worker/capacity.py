"""Capacity: the number of jobs that a worker may claim.

At most `concurrency` handlers run at once. If handlers are short and the database works
concurrently, as many jobs again are claimed while these run; otherwise worker and database would
wait for each other. Such jobs are in flight for a moment before they have a slot.
"""

from __future__ import annotations

import time

from .finisher import SHORT_HANDLER_S
from .memory import free_megabytes
from .protocols import OutcomeSink
from .runner import JobRunner
from .shared import WorkerShared

PREFETCH_FROM = 10  # jobs at once: who takes fewer at a time is not in a hurry


class Capacity:
    """`ahead`: the database works beside us, so the next jobs may be claimed while these run."""

    def __init__(
        self, shared: WorkerShared, runner: JobRunner, sink: OutcomeSink, *, ahead: bool
    ) -> None:
        self._state = shared.state
        self._concurrency = shared.state.settings.concurrency
        self._in_flight = shared.in_flight
        self._counts = shared.metrics.counts
        self._runner = runner
        self._ended = sink
        self._ahead = ahead

    def claimable(self) -> int:
        """The number of slots that are free, or soon will be."""
        if self.short_of_memory():
            return 0
        return min(
            self._concurrency, self.free_slots() + (self._concurrency if self._prefetches() else 0)
        )

    def free_slots(self) -> int:
        """The number of slots that are free once ended jobs are reported."""
        taken = self._in_flight.slots + self._runner.batches.slots + self._runner.abandoned_threads
        return self._concurrency - taken + self._ended.slots

    def _prefetches(self) -> bool:
        if not self._ahead or self._concurrency < PREFETCH_FROM:
            return False
        if not self._ended.handlers_are_short or self._runner.prefetched:
            return False
        oldest = self._in_flight.oldest()
        return oldest is not None and time.monotonic() - oldest.began_at < SHORT_HANDLER_S

    def short_of_memory(self) -> bool:
        floor = self._state.settings.memory_floor
        if floor and free_megabytes() < floor:
            self._counts["deferred_for_memory"] += 1
            return True
        return False
