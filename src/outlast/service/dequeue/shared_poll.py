"""Shared poll: one poll for queues with ready jobs serves all streams that need it at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine

from ...ops.claim import PendingQueues

POLL_VALID_S = 0.05  # seconds for which one poll serves all streams, unless it is outdated

Spawn = Callable[[Coroutine[object, object, PendingQueues]], asyncio.Task[PendingQueues]]


class SharedPoll:
    """Runs at most one poll at a time, for all callers."""

    def __init__(self, poll: Callable[[], Coroutine[object, object, PendingQueues]], spawn: Spawn):
        self._poll, self._spawn = poll, spawn
        self._last: asyncio.Task[PendingQueues] | None = None
        self._began_at = 0.0
        self._outdated_at = 0.0

    def outdate(self) -> None:
        """Note that jobs may have been enqueued: later callers get a poll that begins later."""
        self._outdated_at = time.monotonic()

    async def latest(self) -> PendingQueues:
        not_before = self._outdated_at
        while (last := self._last) is not None and not last.done():
            if self._began_at >= not_before:
                return await asyncio.shield(last)
            await asyncio.wait([last])
        if last is None or self._began_at < max(not_before, time.monotonic() - POLL_VALID_S):
            self._began_at = time.monotonic()
            last = self._last = self._spawn(self._poll())
        return await asyncio.shield(last)
