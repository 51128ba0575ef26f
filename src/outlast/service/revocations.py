"""Those who were let in and stay: told within seconds when their token or session is over."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ..model.errors import StoreError
from ..ops import sessions, tokens
from ..ops.statement import Op
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
        good = await self._service.ol.store.arun(_good_ones, list(watched.values()))
        guarded = await self._service.principals.guarded()
        for over, who in watched.items():
            name = who.session or who.token
            if name not in good if name else guarded:
                over.set()


def _good_ones(watched: Sequence[Principal]) -> Op[set[str]]:
    """The sessions and the tokens among them that are good still."""
    good = set[str]()
    if shown := {who.session for who in watched if who.session}:
        good |= yield from sessions.good_ones(shown)
    if ids := {who.token for who in watched if who.token and not who.session}:
        good |= yield from tokens.good_ones(ids)
    return good
