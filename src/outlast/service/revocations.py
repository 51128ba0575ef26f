"""Those who were let in and stay: told within a few seconds when their token is good no longer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ..model.errors import StoreError
from ..ops import tokens
from .principals import Principal

if TYPE_CHECKING:
    from .state import Service

log = logging.getLogger("outlast.service")

LOOK_EVERY = 2.0  # seconds


class Revocations:
    """However many streams are open, one question every two seconds asks for all their tokens."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._watched: dict[asyncio.Event, Principal] = {}

    @asynccontextmanager
    async def watch(self, who: Principal) -> AsyncIterator[asyncio.Event]:
        over = asyncio.Event()
        self._watched[over] = who
        try:
            yield over
        finally:
            del self._watched[over]

    def __len__(self) -> int:
        return len(self._watched)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY)
            if self._watched:
                try:
                    await self.look()
                except StoreError as error:  # nobody can be shown out while nobody can be asked
                    log.warning("open streams were not checked: %s", error)

    async def look(self) -> None:
        """One pass."""
        watched = dict(self._watched)
        ids = {who.token for who in watched.values() if who.token is not None}
        good = await self._service.ol.store.arun(tokens.good_ones, ids) if ids else set()
        guarded = await self._service.principals.guarded()
        for over, who in watched.items():
            if (who.token not in good) if who.token else guarded:
                over.set()
