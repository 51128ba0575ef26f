"""The history of a clock that was stepped: what it showed, and when it reached a moment. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from ..ledger import LedgerEntry


class Reached(NamedTuple):
    """When a clock reached a moment, by the monotonic clock."""

    at: float
    jumped: bool  # over it, by a step ahead


class ClockHistory:
    """`steps`: since when, by the monotonic clock, which offset from it. The first holds before,
    too."""

    def __init__(self, steps: Sequence[tuple[float, float]]) -> None:
        first, *later = steps
        self.steps = [(-math.inf, first[1]), *later]

    @classmethod
    def read(cls, entries: Iterable[LedgerEntry]) -> ClockHistory:
        """From a ledger: entries `clock` name the offset of the database's clock."""
        return cls([(entry.at, entry.data) for entry in entries if entry.kind == "clock"])

    def shown(self, at: float) -> float:
        """What the clock showed."""
        offset = self.steps[0][1]
        for since, stepped in self.steps:
            if since <= at:
                offset = stepped
        return at + offset

    def reached(self, moment: float) -> list[Reached]:
        """Every time at which the clock came from before a moment to it, or beyond it."""
        found = []
        for (since, offset), (until, following) in pairwise([*self.steps, (math.inf, 0.0)]):
            if since <= moment - offset < until:
                found.append(Reached(moment - offset, False))
            if until < math.inf and until + offset < moment <= until + following:
                found.append(Reached(until, True))
        return found

    def went_back(self, since: float, until: float) -> bool:
        """Whether it was set back within a span."""
        return any(
            since <= at <= until and offset < before
            for (_, before), (at, offset) in pairwise(self.steps)
        )

    def steps_before(self, shown: float, within: float) -> list[float]:
        """By how much it had been stepped just before it showed this."""
        return [
            offset - before
            for (_, before), (at, offset) in pairwise(self.steps)
            if 0.0 <= shown - (at + offset) <= within
        ]
