"""Statistics of an hour, a day and a week: read once for all viewers, then incrementally.

A day and a week consist of long spans, which are stored when they are over; the most recent time
comes from the hour.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ...ops import statistics
from ...single_flight import SingleFlight
from .ranges import HOUR, Range, Steps, group_lines, merge_steps, steps_since

if TYPE_CHECKING:
    from ..components import Service

CHECKS_PER_SPAN = 10  # checks per long span for a new one; a short span has one
RECOUNT_WINDOW_S = 90  # in which a span may be recounted
SPANS_PER_READ = 60  # bounded, so that other readers do not wait long


class RangeHistory:
    """The steps of one range. Returned steps are never changed."""

    def __init__(self, over: Range) -> None:
        self.over = over
        self.steps: Steps = {}
        self.end = 0  # of the counted time
        self.read_at = float("-inf")  # monotonic

    @property
    def is_stale(self) -> bool:
        return time.monotonic() - self.read_at >= max(9.5, self.over.span / CHECKS_PER_SPAN)

    async def read(self, service: Service, now: int) -> None:
        """Read from the first step that may have changed."""
        began, length = time.monotonic(), self.over.step
        first = now - self.over.seconds
        changed = max(first, self.end - self.over.span - RECOUNT_WINDOW_S) // length * length
        steps = {at: step for at, step in self.steps.items() if first - length < at < changed}
        end, low = self.end, changed
        while low < now:
            high = (low + SPANS_PER_READ * self.over.span) // length * length
            found = await service.slow_store.arun(
                statistics.read_statistics, self.over.span, low, high
            )
            steps |= group_lines(found, self.over)
            end = max([end, *(line.at + self.over.span for line in found)])
            low = high
        self.steps, self.end, self.read_at = steps, end, began


class Histories:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._known: dict[str, RangeHistory] = {}
        self._single_flight: SingleFlight[None] = SingleFlight()

    async def steps_until(self, over: Range, now: float) -> Steps:
        known = self._known.setdefault(over.name, RangeHistory(over))
        if known.is_stale:
            await self._single_flight.run(over.name, lambda: known.read(self._service, int(now)))
        if over is HOUR:
            return known.steps
        recent = steps_since(await self.steps_until(HOUR, now), known.end)
        places = {at // over.step * over.step for at in recent}
        under_way = [(at, known.steps[at]) for at in places if at in known.steps]
        return known.steps | merge_steps([*under_way, *recent.items()], over.step)
