"""What is measured in the tables: asked for when somebody wants to know, at most every few seconds,
and kept.

    asked ──┬── fresh ──────────────────────────── the one that is kept
            └── old ── measuring, for a moment ─┬─ the new one
                                                └─ the old one: the age says how old

Who asks never waits for long, however slow the database is; and the slower it is, the less often
it is asked. A new snapshot takes the old one's place as a whole.
"""

from __future__ import annotations

import asyncio
import logging
import time

from ..model.errors import OutlastError
from ..ops.figures import Measured, measure
from ..store import Store

log = logging.getLogger("outlast.metrics")

FRESH = 2.0  # seconds for which a snapshot is as good as a new one
SHARE = 20  # measuring takes at most one part in so many of a connection's time
PATIENCE = 0.5  # seconds that one who asks waits for a new one


class Snapshot:
    """For one event loop: all that use it ask there."""

    def __init__(self, store: Store, fresh: float = FRESH) -> None:
        self._store = store
        self._fresh = fresh
        self._taken_at = time.monotonic()  # if never, its age is that of this process
        self._again_at = 0.0
        self._measuring: asyncio.Task[None] | None = None
        self.measured: Measured | None = None
        self.cost = 0.0  # seconds that the last one took
        self.failures = 0
        self.failing = False  # the last try failed

    @property
    def age(self) -> float:
        return time.monotonic() - self._taken_at

    async def latest(self, patience: float = PATIENCE) -> Measured | None:
        """The one that is kept, made anew if it is old and that does not take long."""
        if self._measuring is None and time.monotonic() >= self._again_at:
            self._measuring = asyncio.create_task(self._measure())
            self._measuring.add_done_callback(self._done)
        if self._measuring is not None:
            await asyncio.wait({self._measuring}, timeout=patience)
        return self.measured

    async def aclose(self) -> None:
        if self._measuring is not None:
            self._measuring.cancel()
            await asyncio.wait({self._measuring})

    def _done(self, measuring: asyncio.Task[None]) -> None:
        self._measuring = None
        if not measuring.cancelled() and (error := measuring.exception()):
            log.error("the tables cannot be measured: %s", error, exc_info=error)

    async def _measure(self) -> None:
        began = time.monotonic()
        try:
            measured = await self._store.arun(measure)
        except OutlastError as error:
            self._failed(error)
        else:
            self.measured, self._taken_at, self.failing = measured, time.monotonic(), False
        finally:
            self.cost = time.monotonic() - began
            self._again_at = time.monotonic() + max(self._fresh, self.cost * SHARE)

    def _failed(self, error: OutlastError) -> None:
        self.failures += 1
        if not self.failing:  # once; the age tells the rest
            log.warning("the tables cannot be measured: %s", error)
        self.failing = True
