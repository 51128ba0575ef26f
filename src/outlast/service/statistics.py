"""The service counts what happened where no worker lives to do it. It is a duty: one does it."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from ..model.errors import OutlastError
from ..model.ids import new_instance_id
from ..ops import duties
from ..ops.statistics import SPAN
from ..worker.statistician import Statistician

if TYPE_CHECKING:
    from .state import Service

log = logging.getLogger("outlast.service")


class Statistics:
    def __init__(self, service: Service) -> None:
        self._store = service.slow_store
        self._name = f"service {new_instance_id()}"
        self._statistician = Statistician(self._store)

    async def run(self) -> None:
        while True:
            try:
                await self.once()
            except OutlastError as error:
                log.warning("nothing was counted: %s", error)
            await asyncio.sleep(SPAN)

    async def once(self) -> None:
        if await self._store.arun(duties.take, "statistics", SPAN, self._name):
            tally = await self._statistician.once()
            await self._store.arun(duties.report, "statistics", tally)
