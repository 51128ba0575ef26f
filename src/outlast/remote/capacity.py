"""Capacity of a remote worker: the jobs that it may accept, and those that it prefetches.

If handlers are short, offers are accepted while other jobs run, and further offers are requested
from the server; otherwise worker and server would wait for each other and for the network.
"""

from __future__ import annotations

import time

from ..worker.capacity import PREFETCH_FROM
from ..worker.finisher import SHORT_HANDLER_S
from ..worker.protocols import OutcomeSink
from ..worker.runner import JobRunner
from ..worker.shared import WorkerShared

# Multiples of the concurrency: all items of a call share its cost.
MAX_ACCEPTED_FACTOR = 2  # accepted before there are slots for them
MAX_OFFERED_FACTOR = 4  # offered, in flight, or being reported


class RemoteCapacity:
    def __init__(self, shared: WorkerShared, runner: JobRunner, sink: OutcomeSink) -> None:
        self._concurrency = shared.state.settings.concurrency
        self._in_flight = shared.in_flight
        self._runner = runner
        self._sink = sink

    def claimable(self) -> int:
        waiting = len(self._runner.prefetched)
        ahead = MAX_ACCEPTED_FACTOR if self._prefetches() and not waiting else 0
        return max(0, self.free_slots() + ahead * self._concurrency - waiting)

    def free_slots(self) -> int:
        """The number of slots without a running handler."""
        taken = self._in_flight.slots + self._runner.batches.slots + self._runner.abandoned_threads
        return self._concurrency - taken

    def prefetch(self) -> int:
        """The number of offers beyond the free slots."""
        return MAX_OFFERED_FACTOR * self._concurrency if self._prefetches() else 0

    def _prefetches(self) -> bool:
        if self._concurrency < PREFETCH_FROM or not self._sink.handlers_are_short:
            return False
        oldest = self._in_flight.oldest()
        if oldest is None or oldest.ended or not oldest.began_at:
            return True
        return time.monotonic() - oldest.began_at < SHORT_HANDLER_S
