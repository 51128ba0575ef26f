"""The handled ticks of a schedule, as spans of time.

When the database's clock steps, they tell which ticks must not fire again and which never fired:

    ▓▓▓▓▓▓▓▓▓▓▓▓──────────────────▓▓▓▓▓▓──▶
    the clock is right, then years ahead, then right again: the gap is free, both spans are not
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache

from .schedule import ScheduleSpec

MAX_SPANS = 8  # per schedule; the oldest two are merged
Span = tuple[float, float]  # first and last tick


@dataclass(frozen=True, slots=True)
class FiredTicks:
    spans: tuple[Span, ...] = ()  # ordered by their first tick
    open: bool = False  # whether the next tick extends the last span

    @staticmethod
    @lru_cache(1024)
    def read(text: str) -> FiredTicks:
        """Spans from a row; unreadable ones are dropped."""
        with suppress(ValueError, TypeError):
            found = json.loads(text)
            spans = tuple((float(first), float(last)) for first, last in filter(None, found))
            return FiredTicks(spans, bool(found) and bool(found[-1]))
        return FiredTicks()

    def text(self) -> str:
        return json.dumps([*self.spans] if self.open or not self.spans else [*self.spans, []])

    def interrupted(self) -> FiredTicks:
        """The next tick starts a new span: the ticks between were not handled."""
        return replace(self, open=False)

    def adding(self, ticks: Sequence[float], missed: int) -> FiredTicks:
        """Add consecutive ticks, after this many that were skipped."""
        before = self.interrupted() if missed else self
        if not ticks:
            return before
        if before.open:
            *earlier, (first, _) = before.spans
            return replace(before, spans=(*earlier, (first, ticks[-1])))
        return FiredTicks(_bounded((*before.spans, (ticks[0], ticks[-1]))), open=True)

    def has(self, tick: float) -> bool:
        return self._span_of(tick) is not None

    def first_free(self, spec: ScheduleSpec, after: float) -> float | None:
        """The first tick after a time that was not handled."""
        tick = spec.next_tick(after)
        while tick is not None and (span := self._span_of(tick)) is not None:
            tick = spec.next_tick(span[1])
        return tick

    def latest(self, until: float) -> float | None:
        """The latest end of a span up to a time."""
        return max((last for _, last in self.spans if last <= until), default=None)

    def _span_of(self, tick: float) -> Span | None:
        return next((span for span in self.spans if span[0] <= tick <= span[1]), None)


def _bounded(spans: tuple[Span, ...]) -> tuple[Span, ...]:
    """Merge the two oldest spans: a tick between them never fires, rather than one of theirs
    twice."""
    if len(spans) <= MAX_SPANS:
        return spans
    (first, end), (_, other_end) = sorted(spans[:-1])[:2]
    kept = [span for span in spans if span not in sorted(spans[:-1])[:2]]
    return ((first, max(end, other_end)), *kept)
