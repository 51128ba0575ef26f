"""Reclaim the jobs of a dead child at once, from its supervisor.

The supervisor is the first to know of the death and its cause. The reclaim has a thread of its own,
because a slow database must not delay the other children. If the database is unavailable, the
child's lock and leases still show the death.
"""

from __future__ import annotations

import logging
import signal
import threading

from ..model.errors import OutlastError
from ..ops.enqueue import notify_queues
from ..ops.reclaim import reclaim_from_workers
from ..store import Store
from .worker_metrics import WorkerMetrics

log = logging.getLogger("outlast.supervisor")


class ChildReaper:
    def __init__(self, store: Store) -> None:
        self._store = store
        self.metrics = WorkerMetrics()

    def __call__(self, instance: str, code: int) -> None:
        threading.Thread(target=self._reclaim, args=(instance, code), daemon=True).start()

    def _reclaim(self, instance: str, code: int) -> None:
        try:
            result = self._store.run(
                reclaim_from_workers, [instance], "exit", f"died ({exit_text(code)})"
            )
            self.metrics.add_reclaimed("exit", result)
            self._store.forget_workers([instance])
            if result.queues and self._store.can_notify:
                self._store.run(notify_queues, self._store.channel, result.queues)
        except OutlastError as error:
            log.warning("jobs of worker %s are left to other workers: %s", instance, error)
        else:
            if result.found:
                log.info("reclaimed %d jobs of a dead worker", result.healed)


def leave_to_leases(instance: str, code: int) -> None:
    """Do nothing: for supervisors without a database, leases show the death of a child."""


def exit_text(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {-code}, {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
