"""What the pages show of this moment: looked up once for all who look, however many they are.

A picture is good for a few seconds. While somebody follows it is made anew by itself; else when
somebody asks: who comes after a pause is shown the last one, with its age, unless a new one is
there in a moment. One statement makes it, and every ten seconds one more reads what was counted
since.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from markupsafe import Markup

from ...model.errors import OutlastError
from ...ops.board import Board, board
from ..once import Once, soon
from .histories import Histories
from .ranges import HOUR, Steps

if TYPE_CHECKING:
    from ..state import Service

log = logging.getLogger("outlast.service")

EVERY = 4.0  # seconds
SHARE = 10  # times as long as a picture took to make is it good
PATIENCE = 0.3  # seconds that one waits for a new picture where there is an old one


@dataclass(slots=True)
class Picture:
    """One moment, of everybody."""

    board: Board = field(default_factory=Board)
    hour: Steps = field(default_factory=dict)
    made: float = 0.0  # monotonic
    life: float = EVERY
    number: int = 0
    parts: dict[object, Markup] = field(
        default_factory=dict
    )  # made from it, and good as long as it

    @property
    def age(self) -> float:
        return time.monotonic() - self.made

    @property
    def is_old(self) -> bool:
        """Whether it is older than any picture that was made while somebody looked."""
        return self.age > 3 * self.life


class Live:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._last: Picture | None = None
        self._once: Once[Picture] = Once()
        self.histories = Histories(service)
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
        """The last picture, while a new one is made where it is not good any more. Who comes when
        there is none waits for the same as all others."""
        last = self._last
        if last is not None and last.age < last.life:
            return last
        making = self._once.begin("picture", self._make)
        if last is None:
            return await asyncio.shield(making)
        return last if not last.is_old else await soon(making, PATIENCE) or last

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
                await asyncio.sleep(max(1.0, picture.life - picture.age))
            except OutlastError as error:  # who looks keeps what there was
                log.warning("the dashboard cannot be made anew: %s", error)
                await asyncio.sleep(EVERY)

    async def _make(self) -> Picture:
        began, last = time.monotonic(), self._last
        seen = await self._service.slow_store.arun(board)
        hour = await self.histories.upto(HOUR, seen.at)
        life = max(EVERY, SHARE * (time.monotonic() - began))
        number = 1 if last is None else last.number + 1
        self._last = Picture(seen, hour, began, life, number)
        new, self._new = self._new, asyncio.Event()
        new.set()
        return self._last
