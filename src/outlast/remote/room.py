"""For how many jobs a remote worker has room, and how many it would take beyond.

Where handlers are short, what was offered is accepted while others run, and the server is asked to
offer the next ones already: else each would wait for the other, and both for the line.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ..worker.returns import BRISK
from ..worker.room import AHEAD_FROM, Room

if TYPE_CHECKING:
    from .worker import RemoteWorker

AHEAD = 2  # times as many as run at once: some are being accepted while others are reported


class FarRoom(Room):
    _worker: RemoteWorker

    def for_claims(self) -> int:
        ahead = self._most if self._brisk() and not self._worker.carrier.ahead else 0
        return min(self._most, self.slots() + ahead)

    def ahead(self) -> int:
        """How many more than there are slots the server should offer."""
        return AHEAD * self._most if self._brisk() else 0

    def _brisk(self) -> bool:
        if self._most < AHEAD_FROM or not self._worker.returns.brisk:
            return False
        oldest = self._worker.hands.oldest()
        if oldest is None or oldest.ended or not oldest.began_at:
            return True
        return time.monotonic() - oldest.began_at < BRISK
