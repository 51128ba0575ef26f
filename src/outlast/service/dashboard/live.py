"""What the pages show of this moment: looked up once for all who look, however many they are.

A picture is good for a few seconds. While somebody follows it is made anew by itself; else when
somebody asks. One statement makes it, and every ten seconds one more reads what was counted since.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...model.errors import OutlastError
from ...ops import statistics
from ...ops.board import Board, board
from ...ops.reach import Reach
from ...ops.statistics import SPAN, Line

if TYPE_CHECKING:
    from ..state import Service

log = logging.getLogger("outlast.service")

EVERY = 4.0  # seconds
SHARE = 10  # times as long as a picture took to make is it good
TOO_OLD = 3  # times its life: whoever asks then waits for the next
HISTORY = 1800  # seconds that the charts show
RECOUNTED = 90  # seconds within which a span may be counted once more


@dataclass(slots=True)
class Picture:
    """One moment. Who may not see all of it is shown their part."""

    board: Board = field(default_factory=Board)
    lines: list[Line] = field(default_factory=list)  # oldest first
    made: float = 0.0  # monotonic
    life: float = EVERY
    number: int = 0
    parts: dict[object, str] = field(default_factory=dict)  # made from it, and good as long as it

    @property
    def age(self) -> float:
        return time.monotonic() - self.made

    def of(self, reach: Reach) -> tuple[Board, list[Line]]:
        whole = reach.tenant is None and reach.queues is None
        seen = [line for line in self.lines if whole or reach.has(line.tenant, line.queue)]
        return self.board.of(reach), seen


class Live:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._last: Picture | None = None
        self._making: asyncio.Task[Picture] | None = None
        self._read_at = 0.0  # monotonic: when the statistics were read
        self._watched, self._new = asyncio.Event(), asyncio.Event()
        self.viewers = 0

    @contextmanager
    def viewer(self) -> Iterator[None]:
        """For as long as this lasts, pictures are made by themselves."""
        self.viewers += 1
        self._watched.set()
        try:
            yield
        finally:
            self.viewers -= 1
            if not self.viewers:
                self._watched.clear()

    async def latest(self) -> Picture:
        """The last picture, while a new one is made where it is not good any more; who comes when
        there is none, or a very old one, waits for the same as all others."""
        last = self._last
        if last is not None and last.age < last.life:
            return last
        loop = asyncio.get_running_loop()
        if self._making is None or self._making.get_loop() is not loop:  # that loop has ended
            self._making = asyncio.create_task(self._make())
            self._making.add_done_callback(self._done)
        if last is not None and last.age < TOO_OLD * last.life:
            return last
        return await asyncio.shield(self._making)

    async def pictures(self) -> AsyncIterator[Picture]:
        """The latest, and then each new one; who is slow misses some."""
        seen = 0
        while True:
            picture = await self.latest()
            if picture.number != seen:
                seen = picture.number
                yield picture
            await self._new.wait()

    async def run(self) -> None:
        while True:
            await self._watched.wait()
            try:
                picture = await self.latest()
                await asyncio.sleep(max(0.1, picture.life - picture.age))
            except OutlastError as error:  # who looks keeps what there was
                log.warning("the dashboard cannot be made anew: %s", error)
                await asyncio.sleep(EVERY)

    async def _make(self) -> Picture:
        began, last, store = time.monotonic(), self._last, self._service.slow_store
        seen = await store.arun(board)
        lines = [] if last is None else last.lines
        if last is None or began - self._read_at >= SPAN - 0.5:
            lines = await self._read(lines, int(seen.at))
            self._read_at = began
        life = max(EVERY, SHARE * (time.monotonic() - began))
        number = 1 if last is None else last.number + 1
        self._last = Picture(seen, lines, began, life, number)
        new, self._new = self._new, asyncio.Event()
        new.set()
        return self._last

    async def _read(self, known: list[Line], now: int) -> list[Line]:
        """What was counted since, and what may have been counted again."""
        low = now - HISTORY
        since = max(low, known[-1].at - RECOUNTED) if known else low
        store = self._service.slow_store
        fresh = await store.arun(statistics.lines, SPAN, since, now + SPAN)
        return [line for line in known if low <= line.at < since] + fresh

    def _done(self, task: asyncio.Task[Picture]) -> None:
        if self._making is task:
            self._making = None
        if not task.cancelled():
            task.exception()  # those who wait for it have it; if nobody does, it is tried again
