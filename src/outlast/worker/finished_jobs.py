"""Bookkeeping of accepted and refused outcomes: jobs in flight, counts, log."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable

from ..model.claim import Claim
from ..model.lifecycle import State
from ..ops.finish import Finished
from ..ops.reclaim import Refusal
from .in_flight import InFlightJobs, log_fields
from .outcome_log import log_success_of
from .worker_metrics import WorkerMetrics

log = logging.getLogger("outlast.worker")

MAX_REFUSED = 1_000  # refused outcomes that are kept until they are recorded


class FinishedJobs:
    def __init__(
        self,
        in_flight: InFlightJobs,
        metrics: WorkerMetrics,
        on_ready: Callable[[set[str]], None] = lambda queues: None,
        refused: deque[Refusal] | None = None,
        on_freed: Callable[[Claim], None] = lambda claim: None,
    ) -> None:
        self._in_flight = in_flight
        self._metrics = metrics
        self._counts = metrics.counts
        self._on_ready = on_ready  # called with the queues in which jobs became ready
        self.on_freed = on_freed  # called with each claim of a limited queue that has ended
        # Refused outcomes, until they are recorded.
        self.refused = deque(maxlen=MAX_REFUSED) if refused is None else refused

    def apply(self, finished: Finished) -> None:
        if finished.queues:
            self._on_ready(finished.queues)
        if finished.accepted and log.isEnabledFor(logging.DEBUG):
            self._log_successes(finished)
        others = 0
        for transition, state in finished.accepted:
            self._in_flight.remove(transition.claim)
            if transition.claim.lane is not None:
                self.on_freed(transition.claim)
            if state is not State.SUCCEEDED:
                others += 1
                self._counts[state] += 1
                self._metrics.add_outcome(transition, state)
        self._counts[State.SUCCEEDED] += len(finished.accepted) - others
        for transition in finished.lost:
            self._in_flight.remove(transition.claim)
            self._counts["refused"] += 1
            self.refused.append(Refusal(*transition.claim.claim_key, str(transition.outcome)))
            log.warning(
                "job %s: attempt %d lost its claim; its outcome (%s) was refused",
                transition.claim.id, transition.claim.attempt, transition.outcome,
                extra=log_fields(transition.claim),
            )  # fmt: skip

    def _log_successes(self, finished: Finished) -> None:
        now = time.monotonic()
        for transition, state in finished.accepted:
            if state is State.SUCCEEDED:
                claim = transition.claim
                log_success_of(self._in_flight.get(claim.id, claim.fence), claim, now)
