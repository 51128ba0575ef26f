"""One helper for everything that goes round: a schedule plus one pass that a test can call.

A pass that fails is counted, logged and tried again later, 1 s after the first failure, then
longer up to 30 s, with jitter, so that a database that comes back is not met by a stampede. A
success resets it. A loop ends only when it is told to.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

log = logging.getLogger("outlast.worker")


class Backoff:
    """How long to wait after the n-th failure in a row."""

    def __init__(self, first: float = 1.0, cap: float = 30.0, factor: float = 2.5) -> None:
        self.first, self.cap, self.factor = first, cap, factor
        self.failures = 0

    def failed(self) -> float:
        plain = min(self.cap, self.first * self.factor**self.failures)
        self.failures += 1
        return plain * random.uniform(0.7, 1.0)

    def succeeded(self) -> None:
        self.failures = 0


class Loop:
    """Runs `once` every `every` seconds (with a little jitter), or when poked, until stopped.

    `once` may return a number: the seconds until it wants to run again.
    """

    def __init__(
        self,
        name: str,
        once: Callable[[], Awaitable[float | None]],
        every: float,
        backoff: Backoff | None = None,
    ) -> None:
        self.name = name
        self.every = every
        self.passes = 0
        self.failures = 0
        self.succeeded_at = time.monotonic()
        self._once = once
        self._backoff = backoff or Backoff()
        self._poke = asyncio.Event()
        self._stopped = False

    async def run(self) -> None:
        while not self._stopped:
            await self._pause(await self.step())

    async def step(self) -> float:
        """One pass, whatever happens in it; the seconds to wait before the next."""
        self.passes += 1
        try:
            wish = await self._once()
        except Exception as error:
            self.failures += 1
            wait = self._backoff.failed()
            log.warning(
                "%s failed (%s); next try in %.1f s", self.name, error, wait, exc_info=_bug(error)
            )
            return wait
        self._backoff.succeeded()
        self.succeeded_at = time.monotonic()
        return self.every * random.uniform(0.9, 1.1) if wish is None else wish

    def poke(self) -> None:
        """Run the next pass now."""
        self._poke.set()

    def stop(self) -> None:
        self._stopped = True
        self._poke.set()

    async def _pause(self, seconds: float) -> None:
        if seconds > 0 and not self._stopped:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._poke.wait()
        self._poke.clear()


def _bug(error: Exception) -> bool:
    """Whether a traceback would tell more than the message: not for the database's own troubles."""
    from ..model.errors import OutlastError

    return not isinstance(error, OutlastError)
