"""History of a stepped clock: the times that it showed, and when it reached one. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from ..ledger import LedgerEntry


class Reached(NamedTuple):
    """When a clock reached a time, by the monotonic clock."""

    at: float
    jumped: bool  # over it, by a step ahead


class ClockHistory:
    """A clock with steps: pairs of a monotonic time and the offset from then on. The first offset
    also holds before."""

    def __init__(self, steps: Sequence[tuple[float, float]]) -> None:
        first, *later = steps
        self.steps = [(-math.inf, first[1]), *later]

    @classmethod
    def read(cls, entries: Iterable[LedgerEntry]) -> ClockHistory:
        """Read the history from a ledger, whose `clock` entries have the database's offset."""
        return cls([(entry.at, entry.data) for entry in entries if entry.kind == "clock"])

    def shown(self, at: float) -> float:
        """The time that the clock showed."""
        offset = self.steps[0][1]
        for since, stepped in self.steps:
            if since <= at:
                offset = stepped
        return at + offset

    def reached(self, moment: float) -> list[Reached]:
        """Every crossing of a time: when the clock reached it, or jumped over it."""
        found = []
        for (since, offset), (until, following) in pairwise([*self.steps, (math.inf, 0.0)]):
            if since <= moment - offset < until:
                found.append(Reached(moment - offset, False))
            if until < math.inf and until + offset < moment <= until + following:
                found.append(Reached(until, True))
        return found

    def went_back(self, since: float, until: float) -> bool:
        """Whether the clock was set back within a span."""
        return any(
            since <= at <= until and offset < before
            for (_, before), (at, offset) in pairwise(self.steps)
        )

    def steps_before(self, shown: float, within: float) -> list[float]:
        """The steps of the clock shortly before it showed this time."""
        return [
            offset - before
            for (_, before), (at, offset) in pairwise(self.steps)
            if 0.0 <= shown - (at + offset) <= within
        ]
