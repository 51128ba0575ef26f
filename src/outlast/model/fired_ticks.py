"""Which ticks of a schedule were dealt with, as spans of time. It keeps a tick from coming a second
time, and tells which never came, when the clock of the database steps:

    ▓▓▓▓▓▓▓▓▓▓▓▓──────────────────▓▓▓▓▓▓──▶
    the clock is right, then years ahead, then right again: the gap is free, both spans are not
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from .schedule import ScheduleSpec

MAX_SPANS = 8  # of one schedule; the oldest two become one
Span = tuple[float, float]  # its first and its last tick


@dataclass(frozen=True, slots=True)
class FiredTicks:
    spans: tuple[Span, ...] = ()  # in the order in which they began
    open: bool = False  # whether the next tick continues the last of them

    @classmethod
    def read(cls, text: str) -> FiredTicks:
        """From a row; what cannot be read is no span."""
        with suppress(ValueError, TypeError):
            found = json.loads(text)
            spans = tuple((float(first), float(last)) for first, last in filter(None, found))
            return cls(spans, bool(found) and bool(found[-1]))
        return cls()

    def text(self) -> str:
        return json.dumps([*self.spans] if self.open or not self.spans else [*self.spans, []])

    def interrupted(self) -> FiredTicks:
        """The next tick begins a span: those between were not dealt with."""
        return replace(self, open=False)

    def adding(self, ticks: Sequence[float], missed: int) -> FiredTicks:
        """With ticks that follow each other, after so many that were left out."""
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
        """The first tick after a moment that was not dealt with."""
        tick = spec.next_tick(after)
        while tick is not None and (span := self._span_of(tick)) is not None:
            tick = spec.next_tick(span[1])
        return tick

    def latest(self, until: float) -> float | None:
        """The last of the spans' ends up to a moment."""
        return max((last for _, last in self.spans if last <= until), default=None)

    def _span_of(self, tick: float) -> Span | None:
        return next((span for span in self.spans if span[0] <= tick <= span[1]), None)


def _bounded(spans: tuple[Span, ...]) -> tuple[Span, ...]:
    """The two that lie the furthest back count as one: a tick between them is never fired, rather
    than one of theirs again."""
    if len(spans) <= MAX_SPANS:
        return spans
    (first, end), (_, other_end) = sorted(spans[:-1])[:2]
    kept = [span for span in spans if span not in sorted(spans[:-1])[:2]]
    return ((first, max(end, other_end)), *kept)
