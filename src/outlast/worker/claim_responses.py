"""Claim responses: decides whether an unknown claim is in transit or lost.

A claim that the database has and the worker does not is in transit, or lost with its response. It
is lost if every request that had begun when the heartbeat thread first saw it was received before
the thread's next renewal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..store import Store


class ClaimResponses:
    """Written by the worker's event loop, read by the heartbeat thread."""

    def __init__(self) -> None:
        self._open: dict[
            int, int
        ] = {}  # requests, with the store's broken connections at the start
        self.begun = 0  # requests so far
        self.lost = 0  # responses that may have been lost
        self._renew_later = False  # the last request failed

    def begin(self, breaks: int) -> int:
        """The number of a new request. `breaks` counts the broken connections of its store."""
        number = self.begun + 1
        self._open[number] = breaks  # before it is counted: see `received_until`
        self.begun = number
        return number

    @contextmanager
    def receiving(self, number: int, store: Store, renew_now: Callable[[], None]) -> Iterator[None]:
        """A context for the response of a request: afterwards its jobs are in flight, or will never
        be. A response may have been lost if the request failed, or the store repeated it over
        another connection. A renewal finds the lost claims: at once, or after the next
        response if the request failed."""
        failed = True
        try:
            yield
            failed = False
        finally:
            lost = self._open.pop(number) != store.breaks or failed
            self.lost += lost
            if failed:
                self._renew_later = True
            elif lost or self._renew_later:
                self._renew_later = False
                renew_now()

    def received_until(self) -> int:
        """From any thread: the number of the last request before the oldest pending one."""
        begun = self.begun
        return min(tuple(self._open), default=begun + 1) - 1
