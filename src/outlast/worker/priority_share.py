"""Priority share: the claims of a worker that take a queue's longest due job, of any priority."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ..model.priority_share import takes_longest_due

COST_FACTOR = 9  # pause until the next such claim, as a multiple of its duration


@dataclass(slots=True)
class PriorityShare:
    """The share of one queue: a tenth of its claims, and at most a tenth of the time. (The search
    may have to skip index entries of taken jobs, which an old snapshot keeps.)"""

    claims: int = 0  # number of claims that left jobs behind
    took: float = 0.0  # seconds, the last of its claims
    not_before: float = 0.0

    @property
    def due(self) -> bool:
        return takes_longest_due(self.claims) and time.monotonic() >= self.not_before

    def claimed(self, longest_due: bool, took: float) -> None:
        if longest_due:  # the faster of two claims counts: the machine may have been busy
            self.not_before = time.monotonic() + COST_FACTOR * min(took, self.took)
            self.took = took
        if longest_due or not takes_longest_due(self.claims):
            self.claims += 1
