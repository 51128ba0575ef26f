"""Position hint: the start of the broadcaster's search for events without a position."""

from __future__ import annotations

import time

HINT_RESET_S = 5.0  # seconds after which every poll stops searching for events without a position


class PositionHint:
    """The number after which to search. Positions assigned long ago leave dead entries
    in the index, which an old snapshot may keep: these are skipped. A transaction that took a lower
    number and commits late is found by a full search every few seconds."""

    def __init__(self) -> None:
        self._start_after, self._next, self._highest = 0, 0, 0
        self._advance_at = 0.0

    def start_after(self) -> int:
        now = time.monotonic()
        if now < self._advance_at:
            return self._start_after
        self._start_after, self._next = self._next, self._highest
        self._advance_at = now + HINT_RESET_S
        return 0

    def note_assigned(self, highest: int) -> None:
        self._highest = max(self._highest, highest)
