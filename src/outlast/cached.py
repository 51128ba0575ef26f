"""Snapshots that are expensive to read: read once for all callers, and fresh for a while.

    latest ──┬── fresh ──────────────────────── the last one
             ├── older ── a read starts ─────── the last one, with its age
             ├── stale ── a read, waited for ── the new one, or else the last one
             └── none ─── a read ────────────── the new one, for all waiting callers

The longer a read takes, the longer its snapshot is fresh: reads never take more than a fixed share
of the time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Generic, TypeVar

from .single_flight import SingleFlight, result_within

STALE_LIVES = 3  # lifetimes after which a snapshot is stale: there was no caller for a while
STALE_WAIT_S = 0.3  # seconds that a caller waits for a new snapshot instead of a stale one
COST_FACTOR = 10  # a snapshot is fresh for this many times the duration of its read


@dataclass(slots=True, kw_only=True)
class Snapshot:
    """A value read at one time. Its cache sets these two fields."""

    taken_at: float = 0.0  # monotonic
    fresh_for: float = 0.0  # seconds

    @property
    def age(self) -> float:
        return time.monotonic() - self.taken_at

    @property
    def is_fresh(self) -> bool:
        return self.age < self.fresh_for

    @property
    def is_stale(self) -> bool:
        return self.age > STALE_LIVES * self.fresh_for


S = TypeVar("S", bound=Snapshot)


class Cached(Generic[S]):
    """The last snapshot, and the function that reads the next one. For one event loop."""

    def __init__(
        self,
        read: Callable[[], Coroutine[object, object, S]],
        fresh_for_s: float,
        cost_factor: float = COST_FACTOR,
        on_refresh: Callable[[], None] | None = None,
    ) -> None:
        self._read = read
        self._fresh_for_s = fresh_for_s
        self._cost_factor = cost_factor
        self._on_refresh = on_refresh
        self._flight: SingleFlight[S] = SingleFlight()
        self.last: S | None = None  # at any age; reading it starts no read

    async def latest(self) -> S:
        last = self.last
        if last is not None and last.is_fresh:
            return last
        refresh = self._start()
        if last is None:
            return await asyncio.shield(refresh)
        return last if not last.is_stale else await result_within(refresh, STALE_WAIT_S) or last

    async def latest_within(self, seconds: float) -> S | None:
        """A fresh snapshot if it comes in time, else the last one; None: there is none yet."""
        if self.last is not None and self.last.is_fresh:
            return self.last
        return await result_within(self._start(), seconds) or self.last

    async def aclose(self) -> None:
        await self._flight.aclose()

    def _start(self) -> asyncio.Task[S]:
        return self._flight.start("", self._refresh)

    async def _refresh(self) -> S:
        began = time.monotonic()
        snapshot = await self._read()
        cost = time.monotonic() - began
        snapshot.taken_at = began
        snapshot.fresh_for = max(self._fresh_for_s, self._cost_factor * cost)
        self.last = snapshot
        if self._on_refresh is not None:
            self._on_refresh()
        return snapshot
