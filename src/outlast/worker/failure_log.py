"""Log of failed cycles of a worker, and of their parts."""

from __future__ import annotations

import logging

from ..model.errors import OutlastError
from .worker_metrics import WorkerMetrics

log = logging.getLogger("outlast.worker")


def log_failure(
    metrics: WorkerMetrics, what: str, error: Exception, level: int = logging.WARNING
) -> None:
    """A cycle, or a part of it, failed."""
    metrics.counts["turn_failed"] += 1
    bug = not isinstance(error, OutlastError)  # its traceback tells more than its message
    log.log(level, "%s; %s", error, what, exc_info=bug)
