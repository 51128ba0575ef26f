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

# Times as many as run at once: what a call costs is shared by all that travel in it.
IN_HAND = 2  # accepted, before there are slots for them
OFFERED = 4  # on their way to us, in hand, or on their way back


class FarRoom(Room):
    _worker: RemoteWorker

    def for_claims(self) -> int:
        ahead = IN_HAND if self._brisk() and not self._worker.carrier.ahead else 0
        return max(0, self.slots() + ahead * self._most)

    def slots(self) -> int:
        """What has ended takes none, though the server may not have heard of it yet."""
        worker = self._worker
        alone = sum(not held.shares for held in worker.hands.running())
        return self._most - alone - worker.carrier.batches.slots - worker.carrier.stuck

    def ahead(self) -> int:
        """How many more than there are slots the server should offer."""
        return OFFERED * self._most if self._brisk() else 0

    def _brisk(self) -> bool:
        if self._most < AHEAD_FROM or not self._worker.returns.brisk:
            return False
        oldest = self._worker.hands.oldest()
        if oldest is None or oldest.ended or not oldest.began_at:
            return True
        return time.monotonic() - oldest.began_at < BRISK
