"""Breaker per destination: a silent receiver must not block all slots of a worker, a timeout each.

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
    """The destination did not respond recently, and one delivery is probing it."""


class DestinationBreaker:
    def __init__(self) -> None:
        self._in_flight = 0
        self._open_until = 0.0  # when what is known is too old

    @contextmanager
    def guard(self, timeout: float) -> Iterator[None]:
        """Around one POST: raises `CircuitOpen` if it should not be made, and learns from its
        end."""
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
