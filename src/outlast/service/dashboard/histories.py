"""What was counted over an hour, a day, a week: read once for all who look, and then what is new.

A day and a week are made of the long spans, which are kept when they are over; what is too young to
be in one comes from the hour.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ...ops import statistics
from ..once import Once
from .ranges import HOUR, Range, Steps, gathered, merged, since

if TYPE_CHECKING:
    from ..state import Service

OFTEN = 10  # times in a span is it looked whether there is a new one; in a short one, once
RECOUNTED = 90  # seconds within which a span may be counted once more
AT_A_TIME = 60  # spans in one look: whoever else wants something does not wait for long


class History:
    """One range. Steps that were given away are never changed."""

    def __init__(self, over: Range) -> None:
        self.over = over
        self.steps: Steps = {}
        self.end = 0  # of what was counted
        self.read_at = float("-inf")  # monotonic

    @property
    def is_old(self) -> bool:
        return time.monotonic() - self.read_at >= max(9.5, self.over.span / OFTEN)

    async def read(self, service: Service, now: int) -> None:
        """Read on, from where something may have changed."""
        began, length = time.monotonic(), self.over.step
        first = now - self.over.seconds
        changed = max(first, self.end - self.over.span - RECOUNTED) // length * length
        steps = {at: step for at, step in self.steps.items() if first - length < at < changed}
        end, low = self.end, changed
        while low < now:
            high = (low + AT_A_TIME * self.over.span) // length * length
            found = await service.slow_store.arun(statistics.lines, self.over.span, low, high)
            steps |= gathered(found, self.over)
            end = max([end, *(line.at + self.over.span for line in found)])
            low = high
        self.steps, self.end, self.read_at = steps, end, began


class Histories:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._known: dict[str, History] = {}
        self._once: Once[None] = Once()

    async def upto(self, over: Range, now: float) -> Steps:
        known = self._known.setdefault(over.name, History(over))
        if known.is_old:
            await self._once.ask(over.name, lambda: known.read(self._service, int(now)))
        if over is HOUR:
            return known.steps
        young = since(await self.upto(HOUR, now), known.end)
        places = {at // over.step * over.step for at in young}
        under_way = [(at, known.steps[at]) for at in places if at in known.steps]
        return known.steps | merged([*under_way, *young.items()], over.step)
