"""Reachability: whether a database answers, and since when it has not."""

from __future__ import annotations

import asyncio
import logging
import time

from ..model.humanize import format_duration
from ..ops.report import clock
from ..store import Store

log = logging.getLogger("outlast.service")

CHECK_INTERVAL_S = 1.0
CHECK_TIMEOUT_S = 2.0  # for one check: a database that is frozen does not refuse


class Reachability:
    """One database, checked on a connection of its own, so that nothing else delays it."""

    def __init__(self, name: str, store: Store) -> None:
        self._name = name
        self._store = store.clone(1)
        self._checked = asyncio.Event()
        self._since: float | None = None

    async def unreachable_since(self) -> float | None:
        """Seconds since the epoch; None: it answers. The first caller waits for the first check."""
        await self._checked.wait()
        return self._since

    async def run(self) -> None:
        """Check for ever."""
        try:
            while True:
                await self._check()
                self._checked.set()
                await asyncio.sleep(CHECK_INTERVAL_S)
        finally:
            await self._store.aclose()

    async def _check(self) -> None:
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_S):
                await self._store.aready()  # as the service does, which creates the tables
                await self._store.arun(clock)
        except Exception as error:
            if self._since is None:
                self._since = time.time()
                log.warning("the database %s is unreachable: %s", self._name, error or "no answer")
        else:
            if self._since is not None:
                away = format_duration(time.time() - self._since)
                log.warning("the database %s answers again, after %s", self._name, away)
            self._since = None
