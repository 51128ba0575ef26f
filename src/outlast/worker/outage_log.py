"""Log of database outages: one line when the database becomes unavailable, one when it responds.

Each part of a worker notices an outage by itself. The first failure is logged with its reason;
later ones are logged at debug level until the database has responded.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from threading import Lock

from ..model.errors import DeadlineExceeded, ServerUnavailable, StoreUnavailable
from ..model.humanize import format_duration

log = logging.getLogger("outlast.worker")

REPEAT_INTERVAL_S = 60.0  # seconds between two lines about one outage
QUIET_AFTER_S = 5.0  # seconds after a line in which a further outage is not logged


class OutageLog:
    """Shared by the event loop and the heartbeat thread of one worker."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._since: float | None = None  # None: the database responds
        self._announced = False
        self._logged_at = -REPEAT_INTERVAL_S

    def logs(self, error: Exception, wait: float) -> bool:
        """Whether an error belongs to an outage, which is logged here; else the caller logs it. A
        missed deadline alone may be one slow statement."""
        if isinstance(error, ServerUnavailable) or not isinstance(error, StoreUnavailable):
            return isinstance(error, DeadlineExceeded) and self._since is not None
        with self._lock:
            now = self._clock()
            self._since = now if self._since is None else self._since
            if now - self._logged_at < (REPEAT_INTERVAL_S if self._announced else QUIET_AFTER_S):
                return True
            lasted = f"; away for {format_duration(now - self._since)}" if self._announced else ""
            self._announced, self._logged_at = True, now
        log.warning("%s%s; next try in %.1f s", str(error).rstrip("."), lasted, wait)
        return True

    def answered(self) -> None:
        """The database has responded."""
        if self._since is None:
            return
        with self._lock:
            since, announced = self._since, self._announced
            self._since, self._announced = None, False
            if since is None or not announced:
                return
            self._logged_at = now = self._clock()
        log.warning("the database responds again, after %s", format_duration(now - since))
