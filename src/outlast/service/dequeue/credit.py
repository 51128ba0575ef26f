"""What one remote worker holds, and how much more it can.

What was offered counts as held until it is put down: reports that pass here tell, and every few
seconds the database. No credit has to be given back.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from ...model.job import Claim, Hold
from ...model.settings import ServiceSettings

AHEAD_FOR = 0.25  # seconds for which a worker's word counts that it would take more


class Credit:
    def __init__(self, jobs: int, terms: ServiceSettings) -> None:
        self.held: dict[Hold, Claim] = {}  # offered here, or run by the worker before
        self.unaccepted: dict[Hold, float] = {}  # until when
        self.asking = 0  # jobs that are being claimed for it
        self._jobs = jobs
        self._terms = terms
        self._more = 0  # jobs beyond those that it would take
        self._more_until = 0.0

    @property
    def most(self) -> int:
        """What it said when it came, and what it said beside its last report: a worker whose jobs
        are short has the next ones before it is through with these. That is only true for a
        moment, so what is not said again is forgotten."""
        return self._jobs + (self._more if time.monotonic() < self._more_until else 0)

    @property
    def room(self) -> int:
        return self.most - len(self.held) - self.asking

    @property
    def nearly_used_up(self) -> bool:
        return 0 < self.room < self.most // 2

    @property
    def has_a_last_life(self) -> bool:
        return any(claim.last_life for claim in self.held.values())

    def take_ahead(self, more: int) -> None:
        self._more = min(more, self._terms.max_credit - self._jobs)
        self._more_until = time.monotonic() + AHEAD_FOR

    def take(self, claims: Sequence[Claim]) -> None:
        until = time.monotonic() + self._terms.offer_lease
        for claim in claims:
            self.held[claim.hold] = claim
            self.unaccepted[claim.hold] = until

    def accepted(self, hold: Hold) -> None:
        self.unaccepted.pop(hold, None)

    def put_down(self, hold: Hold) -> bool:
        """Whether there is more room by it."""
        self.unaccepted.pop(hold, None)
        return self.held.pop(hold, None) is not None

    def lapsed(self, hold: Hold) -> bool:
        """Whether it had time to accept this one, and did not."""
        now = time.monotonic()
        return self.unaccepted.get(hold, now) < now
