"""Outage judge: decides whether the job or a dependency of its task is at fault.

A local worker uses its `Breakers`. A remote worker reports its failures, and its server decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ..model.breaker import Breaker, Circuit, FailureStreak, OpenBreaker
from ..model.claim import Claim
from ..model.outcome import AttemptEnd, Error


class OutageJudge(Protocol):
    """Decides whether failures are caused by an outage. While both mappings are empty, successes
    need not be judged."""

    @property
    def open(self) -> Mapping[Circuit, OpenBreaker]: ...

    @property
    def streaks(self) -> Mapping[Circuit, FailureStreak]: ...

    @property
    def openings(self) -> Mapping[Circuit, int]:
        """The number of times that this process opened each breaker."""

    def judge_end(self, claim: Claim, ended: AttemptEnd, breaker: Breaker | None) -> AttemptEnd: ...

    def holds(self, claim: Claim) -> bool: ...

    def is_open(self, claim: Claim, kind: str = "") -> bool: ...

    def refunds(self, claim: Claim) -> bool: ...

    def trip(self, claim: Claim, breaker: Breaker, error: Error) -> OpenBreaker | None: ...


class ReportedOutages:
    """The judge of a remote worker: its server decides."""

    def __init__(self) -> None:
        self.open: dict[Circuit, OpenBreaker] = {}
        self.streaks: dict[Circuit, FailureStreak] = {}
        self.openings: dict[Circuit, int] = {}

    def judge_end(self, claim: Claim, ended: AttemptEnd, breaker: Breaker | None) -> AttemptEnd:
        return ended

    def holds(self, claim: Claim) -> bool:
        return False

    def is_open(self, claim: Claim, kind: str = "") -> bool:
        return False

    def refunds(self, claim: Claim) -> bool:
        return True

    def trip(self, claim: Claim, breaker: Breaker, error: Error) -> None:
        return None
