"""Count wrong tokens and record them periodically, so that guesses cannot fill the table."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from ...model.errors import StoreError
from ...ops import tokens

if TYPE_CHECKING:
    from ..components import Service

log = logging.getLogger("outlast.service")

RECORD_INTERVAL_S = 60.0  # seconds
MAX_ADDRESSES = 20  # listed in one record


class FailedLogins:
    def __init__(self, service: Service) -> None:
        self._service = service
        self.total = 0  # since the start
        self._recorded = 0
        self._addresses: set[str] = set()

    def add(self, address: str) -> None:
        self.total += 1
        if len(self._addresses) < MAX_ADDRESSES:
            self._addresses.add(address[:100])

    async def run(self) -> None:
        try:
            while True:
                await asyncio.sleep(RECORD_INTERVAL_S)
                await self.record()
        finally:
            await asyncio.shield(self.record())

    async def record(self) -> None:
        """Record the attempts since the last record."""
        tries, addresses = self.total - self._recorded, self._addresses
        if not tries:
            return
        log.warning("%s wrong tokens from %s", tries, ", ".join(sorted(addresses)))
        self._recorded, self._addresses = self.total, set()
        try:
            await self._service.ol.store.arun(tokens.record_wrong_tokens, tries, addresses)
        except StoreError as error:
            log.warning("wrong tokens could not be recorded: %s", error)
