"""Bounded queues: read periodically, since a server may declare none itself."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

REFRESH_S = 5.0


class QueueBounds:
    def __init__(self, refresh: Callable[[], Awaitable[None]]) -> None:
        self._refresh = refresh
        self._due = 0.0

    async def refresh(self) -> None:
        """Read the bounds if the last read is old. One request does so, and others do not wait."""
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + REFRESH_S
        try:
            await self._refresh()
        except BaseException:
            self._due = 0.0
            raise
