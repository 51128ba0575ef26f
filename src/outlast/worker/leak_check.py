"""Leak check: find jobs in flight that no part of the worker tracks, after an internal error.

    in flight ─┬─ claimed ahead: waits for a slot
               ├─ queued, or running in a task
               ├─ in a batch that is open or called
               └─ ended, and to be reported

A job in none of these places would be renewed for ever and never end: an internal error between
two of them must not cost more than an attempt.
"""

from __future__ import annotations

import logging
import time
from collections import Counter

from ..model.errors import OutlastError
from ..model.lifecycle import Outcome
from ..model.outcome import AttemptEnd
from ..model.safe_text import error_record
from .in_flight import InFlight, InFlightJobs, log_fields
from .protocols import OutcomeSink
from .runner import JobRunner

log = logging.getLogger("outlast.worker")

CHECK_INTERVAL_S = 1.0  # seconds


class LeakCheck:
    def __init__(
        self, in_flight: InFlightJobs, runner: JobRunner, sink: OutcomeSink, counts: Counter[str]
    ) -> None:
        self._in_flight = in_flight
        self._runner = runner
        self._ended = sink
        self._counts = counts
        self._check_at = 0.0
        self._suspects: set[InFlight] = set()

    def due(self) -> bool:
        return time.monotonic() >= self._check_at

    def check(self) -> None:
        """Recover jobs that are untracked now and were in the last check. Runs between two cycles
        of the worker."""
        self._check_at = time.monotonic() + CHECK_INTERVAL_S
        self._runner.batches.tidy()
        self._in_flight.recount()
        untracked = self._untracked()
        for job in untracked & self._suspects:
            self._recover(job)
        self._suspects = untracked

    def _untracked(self) -> set[InFlight]:
        in_flight = self._in_flight
        running = [job for job in in_flight.running() if job.task is None or job.task.done()]
        untracked = set(running) - self._runner.tracked() if running else set()
        return untracked | (set(in_flight.ended()) - self._ended.reported())

    def _recover(self, job: InFlight) -> None:
        self._counts["strays"] += 1
        log.error("job %s: internal error of the worker while the job was in flight", job.claim.id,
                  extra=log_fields(job.claim))  # fmt: skip
        try:
            if job.ended:
                self._ended.add(job)
            else:
                self._runner.end(job, self._failure_end(job))
        except Exception:
            log.exception("job %s: dropped, for other workers to reclaim", job.claim.id)
            self._in_flight.discard(job)

    def _failure_end(self, job: InFlight) -> AttemptEnd:
        """A normal failure: a job that makes the worker fail each time must not be retried for
        ever."""
        error = OutlastError("internal error of the worker; see its log")
        if job.execution is None:
            return AttemptEnd(Outcome.FAILED, error=error_record(error))
        try:
            return job.execution.raised(error)
        except Exception:
            log.exception("job %s: the end of its attempt is unknown", job.claim.id)
            return AttemptEnd(Outcome.FAILED, error=error_record(error))
        finally:
            job.execution.context.disown()  # a thread may still be running it
