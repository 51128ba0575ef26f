"""Credit: the number of further jobs that one remote worker can hold.

An offered job counts as held until a report through this server ends it, or the database, which is
read every few seconds, shows that it has ended. Workers do not return credit explicitly.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from ...model.claim import ClaimKey
from ...model.settings import ServiceSettings
from .offer_book import Offer

PREFETCH_FOR_S = 0.25  # seconds for which a worker's prefetch request counts


class Credit:
    def __init__(
        self, limit: int, settings: ServiceSettings, held: Mapping[ClaimKey, Offer]
    ) -> None:
        self.held = held  # offered here, or run by the worker before
        self.requested = 0  # jobs being claimed for it
        self._jobs = limit
        self._settings = settings
        self._prefetch = 0  # additional jobs that it accepts
        self._prefetch_until = 0.0

    @property
    def limit(self) -> int:
        """The worker's initial credit plus the prefetch of its last report: a worker with short
        jobs gets further ones before it finishes these. A prefetch soon expires unless it is
        repeated."""
        return self._jobs + (self._prefetch if time.monotonic() < self._prefetch_until else 0)

    @property
    def free(self) -> int:
        return self.limit - len(self.held) - self.requested

    @property
    def is_nearly_used(self) -> bool:
        return 0 < self.free < self.limit // 2

    @property
    def has_a_last_life(self) -> bool:
        return any(offer.claim.one_crash_left for offer in self.held.values())

    def set_prefetch(self, more: int) -> None:
        self._prefetch = min(more, self._settings.max_credit - self._jobs)
        self._prefetch_until = time.monotonic() + PREFETCH_FOR_S
