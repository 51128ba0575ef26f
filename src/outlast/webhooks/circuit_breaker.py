"""A receiver that does not answer must not take all slots of a worker, each for a whole timeout.

    silent ── for one timeout ──▶ one delivery at a time tries it; the others fail at once, as they
                                  would after waiting, and come back by their policy
    it answers, whatever it says ─▶ all may go out again

Each process learns it for itself, and what it knows is never older than one timeout.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class CircuitOpen(Exception):
    """It gave no answer a moment ago, and somebody is asking again."""


class DestinationBreaker:
    def __init__(self) -> None:
        self._in_flight = 0
        self._open_until = 0.0  # when what is known is too old

    @contextmanager
    def guard(self, timeout: float) -> Iterator[None]:
        """Around one POST: raises Silent where it should not be made, and learns from how it
        ends."""
        if self._in_flight and time.monotonic() < self._open_until:
            raise CircuitOpen
        self._in_flight += 1
        try:
            yield
            self._open_until = 0.0
        except TimeoutError:
            self._open_until = time.monotonic() + timeout
            raise
        finally:
            self._in_flight -= 1
