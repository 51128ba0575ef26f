"""Revocation: end open streams within seconds when their token or session ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ...model.errors import StoreError
from ...ops import sessions, tokens
from ...ops.operation import Op
from .principals import Principal

if TYPE_CHECKING:
    from ..components import Service

log = logging.getLogger("outlast.service")

CHECK_INTERVAL_S = 2.0  # seconds


class Revocations:
    """Checks the tokens of all open streams, by one query every two seconds."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._watched: dict[asyncio.Event, Principal] = {}

    @asynccontextmanager
    async def watch(self, who: Principal) -> AsyncIterator[asyncio.Event]:
        revoked = asyncio.Event()
        self._watched[revoked] = who
        try:
            yield revoked
        finally:
            del self._watched[revoked]

    def __len__(self) -> int:
        return len(self._watched)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S)
            if self._watched:
                try:
                    await self.check()
                except StoreError as error:  # no stream is ended while the database is unavailable
                    log.warning("tokens of open streams not checked: %s", error)

    async def check(self) -> None:
        """Check all watched tokens once."""
        watched = dict(self._watched)
        good = await self._service.ol.store.arun(_valid_ids, list(watched.values()))
        guarded = await self._service.principals.guarded()
        for revoked, who in watched.items():
            name = who.session or who.token
            if name not in good if name else guarded:
                revoked.set()


def _valid_ids(watched: Sequence[Principal]) -> Op[set[str]]:
    """The sessions and tokens among these that are still valid."""
    good = set[str]()
    if shown := {who.session for who in watched if who.session}:
        good |= yield from sessions.valid_sessions(shown)
    if ids := {who.token for who in watched if who.token and not who.session}:
        good |= yield from tokens.valid_tokens(ids)
    return good
