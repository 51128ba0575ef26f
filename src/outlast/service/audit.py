"""Wrong tokens are counted, and put on record now and then: a guesser cannot fill the table."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from ..model.errors import StoreError
from ..ops import tokens

if TYPE_CHECKING:
    from .state import Service

log = logging.getLogger("outlast.service")

TELL_EVERY = 60.0  # seconds
MOST_ADDRESSES = 20  # that are named in one record


class Audit:
    def __init__(self, service: Service) -> None:
        self._service = service
        self.wrong_tokens = 0  # in all
        self._told = 0
        self._addresses: set[str] = set()

    def wrong_token(self, address: str) -> None:
        self.wrong_tokens += 1
        if len(self._addresses) < MOST_ADDRESSES:
            self._addresses.add(address[:100])

    async def run(self) -> None:
        try:
            while True:
                await asyncio.sleep(TELL_EVERY)
                await self.tell()
        finally:
            await asyncio.shield(self.tell())

    async def tell(self) -> None:
        """Put on record what came since the last time."""
        tries, addresses = self.wrong_tokens - self._told, self._addresses
        if not tries:
            return
        log.warning("%s wrong tokens, from %s", tries, ", ".join(sorted(addresses)))
        self._told, self._addresses = self.wrong_tokens, set()
        try:
            await self._service.ol.store.arun(tokens.refused, tries, addresses)
        except StoreError as error:
            log.warning("that could not be put on record: %s", error)
