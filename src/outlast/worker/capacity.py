"""Capacity: the number of jobs that a worker may claim.

At most `concurrency` handlers run at once. While handlers are short, more jobs are claimed than
there are slots: enough for a moment, so that many jobs share a round trip and its commit. They are
in flight for that moment before they have a slot. Jobs that get none for longer, because handlers
turn out to be long, are released (`JobRunner.release_unstarted`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from operator import attrgetter

from ..model.claim import Claim
from .finisher import SHORT_HANDLER_S, Finisher
from .memory import free_megabytes
from .runner import JobRunner
from .shared import WorkerShared

PREFETCH_FROM = 10  # minimum concurrency for prefetching
AHEAD_S = 0.0125  # target duration, in seconds, of all handlers of one claim
MAX_AT_ONCE = 300  # jobs of one claim, unless the concurrency is higher
MAX_CHARS_AT_ONCE = 2_000_000  # of their arguments


class Capacity:
    """The capacity of a local worker. `beside`: the database works in parallel with the worker, so
    the next jobs may be claimed while these run."""

    def __init__(
        self, shared: WorkerShared, runner: JobRunner, finisher: Finisher, *, beside: bool
    ) -> None:
        self._state = shared.state
        self._concurrency = shared.state.settings.concurrency
        self._in_flight = shared.in_flight
        self._counts = shared.metrics.counts
        self._runner = runner
        self._finisher = finisher
        self._beside = beside
        self._chars = 0.0  # of the arguments of a job, in the last claim
        self._reclaimed = False  # whether workers were lost with jobs of the last claim

    def claimable(self, ceiling: float = math.inf) -> int:
        """The number of jobs that have a slot, or soon will; beyond the concurrency at most
        `ceiling`."""
        if self.short_of_memory() or self._has_company_to_avoid():
            return 0
        free, most = self.free_slots(), self._most_at_once()
        most = int(min(most, max(self._concurrency, ceiling)))
        ahead = most if self._beside else max(0, most - self._concurrency)
        return min(max(self._concurrency, most), free + ahead - len(self._runner.prefetched))

    def beside(self) -> int:
        """The number of jobs that may be claimed while another claim is pending: none if handlers
        wait in half of the slots, because jobs then arrive faster than they end."""
        if not self._beside or 2 * self.free_slots() < self._concurrency:
            return 0
        return 0 if self.short_of_memory() else self._most_at_once()

    def free_slots(self) -> int:
        """The number of slots without a running handler."""
        taken = self._in_flight.slots + self._runner.batches.slots + self._runner.abandoned_threads
        return self._concurrency - taken

    def _has_company_to_avoid(self) -> bool:
        """Whether a suspect runs, beside which no job may begin."""
        suspects = self._in_flight.suspects
        return bool(suspects) and self._in_flight.secludes() and not all(j.ended for j in suspects)

    def _most_at_once(self) -> int:
        """The number of jobs whose handlers end within AHEAD_S; none if handlers may be long."""
        if not self._prefetches():
            return 0
        most = min(int(self._finisher.pace * AHEAD_S), MAX_AT_ONCE)
        if self._chars * most > MAX_CHARS_AT_ONCE:
            most = int(MAX_CHARS_AT_ONCE / self._chars)
        return max(self._concurrency, most)

    def note_claims(self, claims: Sequence[Claim]) -> None:
        """Note the size of the claims' arguments, and whether some have crashed before: more such
        jobs may follow, and jobs that have not begun should not be in flight at the next crash."""
        if claims:
            self._chars = sum(map(len, map(attrgetter("args"), claims))) / len(claims)
        self._reclaimed = any(map(attrgetter("crashes"), claims))

    def _prefetches(self) -> bool:
        if self._concurrency < PREFETCH_FROM or self._runner.prefetched or self._reclaimed:
            return False
        if not self._finisher.handlers_are_short:
            return False
        oldest = self._in_flight.oldest()
        if oldest is None or oldest.ended:  # an ended job says nothing about running ones
            return oldest is not None
        return time.monotonic() - oldest.began_at < SHORT_HANDLER_S

    def short_of_memory(self) -> bool:
        floor = self._state.settings.memory_floor
        if floor and free_megabytes() < floor:
            self._counts["deferred_for_memory"] += 1
            return True
        return False
