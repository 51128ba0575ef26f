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
from ..ops.enqueue import wake
from ..ops.reclaim import bury
from ..store import Store
from .figures import Figures

log = logging.getLogger("outlast.supervisor")


class Burials:
    def __init__(self, store: Store) -> None:
        self._store = store
        self.figures = Figures()

    def __call__(self, instance: str, code: int) -> None:
        threading.Thread(target=self._bury, args=(instance, code), daemon=True).start()

    def _bury(self, instance: str, code: int) -> None:
        try:
            swept = self._store.run(bury, [instance], "exit", f"died ({how_it_ended(code)})")
            self.figures.took_back("exit", swept)
            self._store.buried([instance])
            if swept.queues and self._store.wakes:
                self._store.run(wake, self._store.channel, swept.queues)
        except OutlastError as error:
            log.warning("what worker %s was running is left to the others: %s", instance, error)
        else:
            if swept.found:
                log.info("took back %d jobs of a dead worker", swept.healed)


def nobody(instance: str, code: int) -> None:
    """For those who have no database: leases speak for their children."""


def how_it_ended(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {-code}, {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
