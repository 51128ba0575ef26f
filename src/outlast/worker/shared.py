"""State shared by the parts of one worker: jobs in flight, counters, wake-up, threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .claim_responses import ClaimResponses
from .in_flight import InFlightJobs
from .outage_log import OutageLog
from .protocols import WorkerService
from .state import WorkerState
from .threads import Threads
from .wakeup import Wakeup
from .worker_metrics import WorkerMetrics


@dataclass(frozen=True, slots=True)
class WorkerShared:
    state: WorkerState
    threads: Threads  # started on demand
    in_flight: InFlightJobs = field(default_factory=InFlightJobs)
    claim_responses: ClaimResponses = field(default_factory=ClaimResponses)
    metrics: WorkerMetrics = field(default_factory=WorkerMetrics)
    wakeup: Wakeup = field(default_factory=Wakeup)
    outage: OutageLog = field(default_factory=OutageLog)
    services: Sequence[WorkerService] = ()  # run beside the worker
