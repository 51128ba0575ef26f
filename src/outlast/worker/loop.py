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

from ..model.errors import CorruptDatabase, OutlastError, SchemaMismatch, Unsupported
from .outage_log import OutageLog

log = logging.getLogger("outlast.worker")

# A program that starts on such a database ends with the reason: no waiting repairs it.
PERMANENT_ERRORS = (CorruptDatabase, SchemaMismatch, Unsupported)


class Backoff:
    """How long to wait after the n-th failure in a row."""

    def __init__(self, first: float = 1.0, cap: float = 30.0, factor: float = 2.5) -> None:
        self.first, self.cap, self.factor = first, cap, factor
        self.failures = 0

    def failed(self) -> float:
        # The exponent is bounded, because a database may be away for a year.
        plain = min(self.cap, self.first * self.factor ** min(self.failures, 20))
        self.failures += 1
        return plain * random.uniform(0.7, 1.0)

    def succeeded(self) -> None:
        self.failures = 0


class Loop:
    """Runs `once` every `every` seconds (a little sooner, by jitter), or when poked, until stopped.

    `once` may return a number: the seconds until it wants to run again. A pass that is meant to
    last (a watch) and did so for `settled` seconds has gone well, although it failed in the end.
    """

    def __init__(
        self,
        name: str,
        once: Callable[[], Awaitable[float | None]],
        every: float,
        backoff: Backoff | None = None,
        stable_after: float | None = None,
    ) -> None:
        self.name = name
        self.every = every
        self.passes = 0
        self.failures = 0
        self.succeeded_at = time.monotonic()
        self._once = once
        self._backoff = backoff or Backoff()
        self._stable_after = self._backoff.cap if stable_after is None else stable_after
        self._trigger = asyncio.Event()
        self._stopped = False
        self.outage: OutageLog | None = None  # of its worker, if it talks to the database
        self.proves_answer = False  # each pass that succeeds has talked to the database

    async def run(self) -> None:
        while not self._stopped:
            await self._pause(await self.step())

    async def step(self) -> float:
        """One pass, whatever happens in it; the seconds to wait before the next."""
        self.passes += 1
        began = time.monotonic()
        try:
            next_in = await self._once()
        except Exception as error:
            return self._failed(error, time.monotonic() - began)
        self._backoff.succeeded()
        self.succeeded_at = time.monotonic()
        if self.proves_answer and self.outage is not None:
            self.outage.answered()
        return self.every * random.uniform(0.8, 1.0) if next_in is None else next_in

    def _failed(self, error: Exception, lasted: float) -> float:
        if lasted > self._stable_after:
            self._backoff.succeeded()
        self.failures += 1
        wait = self._backoff.failed()
        bug = not isinstance(error, OutlastError)  # its traceback tells more than its message
        known = self.outage is not None and self.outage.logs(error, wait)
        level = logging.DEBUG if known else logging.WARNING
        log.log(level, "%s failed (%s); next try in %.1f s", self.name, error, wait, exc_info=bug)
        return wait

    def trigger(self) -> None:
        """Run the next pass now."""
        self._trigger.set()

    def stop(self) -> None:
        self._stopped = True
        self._trigger.set()

    async def _pause(self, seconds: float) -> None:
        if seconds > 0 and not self._stopped:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._trigger.wait()
        self._trigger.clear()
