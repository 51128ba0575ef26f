"""Reachability: whether a database responds, and since when it has not."""

from __future__ import annotations

import asyncio
import logging
import time

from ..model.humanize import format_duration
from ..ops.report import clock
from ..store import Store

log = logging.getLogger("outlast.service")

CHECK_INTERVAL_S = 1.0
CHECK_TIMEOUT_S = 2.0  # for one check: a frozen database does not refuse connections


class Reachability:
    """One database, checked on a connection of its own, so that nothing else delays it."""

    def __init__(self, name: str, store: Store) -> None:
        self._name = name
        self._store = store.clone(1)
        self._checked = asyncio.Event()
        self._since: float | None = None

    async def unreachable_since(self) -> float | None:
        """Seconds since the epoch; None: it responds. The first caller waits for the first
        check."""
        await self._checked.wait()
        return self._since

    async def run(self) -> None:
        """Check for ever. A late check continues, and no other one begins meanwhile."""
        check: asyncio.Task[None] | None = None
        try:
            while True:
                check = check or asyncio.create_task(self._check())
                await asyncio.wait([check], timeout=CHECK_TIMEOUT_S)
                if check.done():
                    self._note(check.exception())
                    check = None
                    await asyncio.sleep(CHECK_INTERVAL_S)
                else:
                    self._note(TimeoutError(f"no response within {CHECK_TIMEOUT_S:g} s"))
        finally:
            if check is not None:
                check.cancel()
                await asyncio.wait([check])
            await self._store.aclose()

    async def _check(self) -> None:
        await self._store.aready()  # as the service does, which creates the tables
        await self._store.arun(clock)

    def _note(self, error: BaseException | None) -> None:
        self._checked.set()
        if error is None and self._since is not None:
            away = format_duration(time.time() - self._since)
            log.warning("the database %s responds again, after %s", self._name, away)
            self._since = None
        elif error is not None and self._since is None:
            self._since = time.time()
            log.warning("the database %s is unreachable: %s", self._name, error)
