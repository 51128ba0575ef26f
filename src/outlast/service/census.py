"""How many jobs there are, counted now and then for whoever asks.

Counting reads every row, so it is done at most once in `snapshot_every` seconds, and never for more
than a tenth of the time: a count that took two seconds is good for twenty. Who asks meanwhile gets
the last one, with its age; who asks after a pause gets the next one if it is there in a moment, and
who asks when there is none waits for it. It has a connection of its own, so nothing else waits.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..model.errors import StoreError
from ..model.lifecycle import State
from ..model.unreadable import UNREADABLE
from ..ops.reach import Reach
from ..ops.search import ALL, Kind, Sought, census
from .once import Once, soon
from .problems import Unavailable

if TYPE_CHECKING:
    from .state import Service

SHARE = 10  # times as long as a count took is it good
AFTER_FAILURE = 10.0  # seconds until it is tried again
TOO_OLD = 3  # times its life: whoever asks then waits a moment for the next
PATIENCE = 0.3  # seconds


@dataclass(frozen=True, slots=True)
class Counted:
    kinds: list[Kind]
    made: float  # monotonic
    life: float

    @property
    def age(self) -> float:
        return time.monotonic() - self.made

    @property
    def is_old(self) -> bool:
        """Whether nobody asked for a while."""
        return self.age > TOO_OLD * self.life

    def of(self, reach: Reach, sought: Sought = ALL) -> Iterable[Kind]:
        """Those kinds that a caller may see and asks for."""
        wanted = [("state", sought.state), ("queue", sought.queue), ("task", sought.task)]
        for kind in self.kinds:
            if reach.has(kind.tenant, kind.queue) and all(
                value in (None, getattr(kind, name)) for name, value in wanted
            ):
                yield kind


class Census:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._last: Counted | None = None
        self._not_before = 0.0
        self._once: Once[Counted] = Once()

    @property
    def last(self) -> Counted | None:
        """The last count, however old; nothing is counted for it."""
        return self._last

    async def counted(self) -> Counted:
        last = self._last
        if last is not None and last.age < last.life:
            return last
        next_one = self._once.begin("census", self._count)
        if last is None:
            return await asyncio.shield(next_one)
        return last if not last.is_old else await soon(next_one, PATIENCE) or last

    async def counted_soon(self) -> Counted | None:
        """The same for those who cannot wait long; None: it is not there yet."""
        if self._last is not None:
            return await self.counted()
        return await soon(self._once.begin("census", self._count), PATIENCE)

    async def _count(self) -> Counted:
        began = time.monotonic()
        if began < self._not_before:
            raise Unavailable("the jobs could not be counted", self._not_before - began)
        try:
            kinds = await self._service.slow_store.arun(census)
        except StoreError:
            self._not_before = time.monotonic() + AFTER_FAILURE
            raise
        life = max(self._service.settings.snapshot_every, SHARE * (time.monotonic() - began))
        self._last = Counted(kinds, began, life)
        return self._last


def by_state(kinds: Iterable[Kind]) -> dict[str, int]:
    counts = {str(state): 0 for state in State}
    for kind in kinds:
        state = kind.state if kind.state in counts else str(UNREADABLE)
        counts[state] = counts.get(state, 0) + kind.number
    return counts
