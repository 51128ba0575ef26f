"""Claim responses: decides whether an unknown claim is in transit or lost.

A claim that the database has and the worker does not is in transit, or lost with its response. It
is lost if every request that had begun when the heartbeat thread first saw it was received before
the thread's next renewal.
"""

from __future__ import annotations


class ClaimResponses:
    """Written by the worker's event loop, read by the heartbeat thread."""

    def __init__(self) -> None:
        self._open: dict[
            int, int
        ] = {}  # requests, with the store's broken connections at the start
        self.begun = 0  # requests so far
        self.lost = 0  # responses that may have been lost

    def begin(self, breaks: int) -> int:
        """The number of a new request. `breaks` counts the broken connections of its store."""
        number = self.begun + 1
        self._open[number] = breaks  # before it is counted: see `received_until`
        self.begun = number
        return number

    def received(self, number: int, breaks: int, *, failed: bool) -> bool:
        """Close a request: its jobs are in flight, or will never be. Returns whether a response may
        have been lost: it failed, or the store repeated it over another connection."""
        lost = self._open.pop(number) != breaks or failed
        self.lost += lost
        return lost

    def received_until(self) -> int:
        """From any thread: the number of the last request before the oldest pending one."""
        begun = self.begun
        return min(tuple(self._open), default=begun + 1) - 1
