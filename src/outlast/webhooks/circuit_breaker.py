"""Breaker per destination: a silent receiver must not hold all slots of a worker for a timeout
each.

    silent ── for one timeout ──▶ one delivery at a time probes it; the others fail at once, as they
                                  would after waiting, and are retried by their policy
    it responds, with any status ─▶ all deliveries may be sent again

Each process learns it for itself, and its knowledge is never older than one timeout.
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
        self._open_until = 0.0  # when its knowledge expires

    @contextmanager
    def guard(self, timeout: float) -> Iterator[None]:
        """Guard one POST: raises `CircuitOpen` if it must not be sent, and learns from its
        outcome."""
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
