"""For how many jobs a worker has room.

No more handlers run at once than its concurrency says. Where handlers are short and the database
works beside us, the next jobs are claimed while these run, as many again: else one would always
wait for the other. They are in hand before there is a slot for them, for a moment.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .memory import free_megabytes
from .returns import BRISK

if TYPE_CHECKING:
    from .worker import Worker

AHEAD_FROM = 10  # jobs at once: who takes fewer at a time is not in a hurry


class Room:
    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._most = worker.settings.concurrency

    def for_claims(self) -> int:
        """For how many there is a slot, or soon will be."""
        if self.short_of_memory():
            return 0
        return min(self._most, self.slots() + (self._most if self._brisk() else 0))

    def slots(self) -> int:
        """For how many there is one now, once what has ended is given back."""
        worker = self._worker
        taken = worker.hands.slots + worker.carrier.batches.slots + worker.carrier.stuck
        return self._most - taken + worker.returns.slots

    def _brisk(self) -> bool:
        worker = self._worker
        if worker.steady is worker.store or self._most < AHEAD_FROM:
            return False
        if not worker.returns.brisk or worker.carrier.ahead:
            return False
        oldest = worker.hands.oldest()
        return oldest is not None and time.monotonic() - oldest.began_at < BRISK

    def short_of_memory(self) -> bool:
        floor = self._worker.settings.memory_floor
        if floor and free_megabytes() < floor:
            self._worker.counts["deferred_for_memory"] += 1
            return True
        return False
