"""How many more jobs one remote worker can hold.

A job that was offered counts as held until it is put down: reports that pass here tell, and every
few seconds the database. No credit has to be given back.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from ...model.claim import ClaimKey
from ...model.settings import ServiceSettings
from .offer_book import Offer

PREFETCH_FOR_S = 0.25  # seconds for which a worker's word counts that it would take more


class Credit:
    def __init__(
        self, limit: int, settings: ServiceSettings, held: Mapping[ClaimKey, Offer]
    ) -> None:
        self.held = held  # offered here, or run by the worker before
        self.requested = 0  # jobs that are being claimed for it
        self._jobs = limit
        self._settings = settings
        self._prefetch = 0  # jobs beyond those that it would take
        self._prefetch_until = 0.0

    @property
    def limit(self) -> int:
        """What it said when it came, and what it said beside its last report: a worker whose jobs
        are short has the next ones before it is through with these. That is only true for a
        moment, so what is not said again is forgotten."""
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
