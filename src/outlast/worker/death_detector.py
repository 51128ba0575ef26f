"""Death detection: which workers are dead, and which expired leases are trusted.

A lock is free for a moment while its connection is replaced, so a worker counts as dead only after
two checks without its lock. After an outage, neither free locks nor expired leases prove anything
until live workers have had time to reconnect and renew.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from ..model.lease_trust import LeaseTrust
from ..ops.reclaim import LossSigns, signs_of_loss
from ..store import Store
from .state import WorkerState

log = logging.getLogger("outlast.worker")

CONFIRM_DEATH_S = 0.15  # between the two checks that confirm a death
EXPIRING_SHARE = 0.6  # of a lease: with less left, its owner should have renewed it
ENDLESS_LEASE_S = 60.0  # beyond two leases: as in the audit's `endless`
OUTAGE_GRACE_S = 3.0  # at least, after an outage: a free lock proves nothing


class DeathDetector:
    def __init__(self, store: Store, state: WorkerState) -> None:
        self._store = store
        self._state = state
        self._suspected: dict[str, float] = {}  # workers without a lock, with the time first seen
        self._was_away = False  # the last call did not reach the database
        self._locks_trusted_at = 0.0
        self.trust = LeaseTrust(state.settings.lease, state.settings.renew_every)
        self.fleet = 1  # number of workers, at the last poll

    @property
    def suspects(self) -> bool:
        """Whether to check again soon."""
        return bool(self._suspected)

    @property
    def outage_grace(self) -> bool:
        """Whether the database is unavailable, or was until just now, or its clock has stepped:
        some live workers have not had time to renew."""
        return self.trust.unsettled(time.monotonic())

    async def read_signs(self) -> LossSigns:
        """Read the signs of lost claims, and the database's time. A live owner renews before a
        third of its lease is over: a lease is watched once less than EXPIRING_SHARE is left, or if
        it is endless (which the audit judges)."""
        sent, lease = time.monotonic(), self._state.settings.lease
        signs = await self._store.arun(
            signs_of_loss, lease * EXPIRING_SHARE, 2 * lease + ENDLESS_LEASE_S
        )
        if self.trust.observe_clock(signs.clock, sent, time.monotonic()):
            log.warning("the database's clock has stepped: leases are judged after one renewal")
        if self._was_away:  # the grace time starts now, not when the outage ended
            self._was_away = False
            self.distrust_locks()
        self.fleet = signs.fleet
        return signs

    def dead_workers(self, signs: LossSigns) -> list[str]:
        if time.monotonic() < self._locks_trusted_at:
            return []
        return self.confirmed_dead(self._store.confirm_dead(signs.workers))

    def confirmed_dead(self, silent: Sequence[str]) -> list[str]:
        """Workers found without a lock for the second time."""
        now = time.monotonic()
        first_seen = {id: self._suspected.get(id, now) for id in silent if id != self._state.id}
        dead = [id for id, since in first_seen.items() if now - since >= CONFIRM_DEATH_S * 0.9]
        self._suspected = {id: since for id, since in first_seen.items() if id not in dead}
        return dead

    def distrust_locks(self) -> None:
        """A connection of this worker broke: others may be reconnecting as well."""
        grace = max(OUTAGE_GRACE_S, self._state.settings.renew_every)
        self._locks_trusted_at = time.monotonic() + grace
        self._suspected = {}

    def database_away(self) -> None:
        """No worker can renew during an outage: leases prove nothing until workers have had time
        to."""
        self._was_away = True
        self.trust.doubt()
