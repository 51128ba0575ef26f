"""What a supervisor does for a child that died: its jobs are taken back at once.

It knows the death before anyone else, and how it came. In a thread of its own, because the
database may be slow and the other children are not to wait; if it cannot be reached, the child's
lock and leases still speak.
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
            log.warning("what worker %s was running is left to the others: %s", instance, error)
        else:
            if result.found:
                log.info("took back %d jobs of a dead worker", result.healed)


def leave_to_leases(instance: str, code: int) -> None:
    """For those who have no database: leases speak for their children."""


def exit_text(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {-code}, {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
