"""What others began with flows goes on: who came late is counted, what was cancelled ends."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ..ops import cancel_flow
from ..ops.enqueue import CANCEL_SIGNAL
from ..ops.latecomers import count_late
from ..store import Store
from .row_faults import about_a_row, unforeseen
from .sweeper import Sweeper

if TYPE_CHECKING:
    from .worker import Worker

log = logging.getLogger("outlast.worker")

LATE = 100  # jobs that are counted in one transaction, which holds all that they come after


class FlowTender:
    def __init__(self, worker: Worker, store: Store, sweeper: Sweeper) -> None:
        self._worker = worker
        self._store = store
        self._sweeper = sweeper

    async def tend(self) -> None:
        """Go on with what others began: apart from the reclaim, so that a flow which cannot be
        tended keeps no dead worker's job waiting."""
        await self.count_late()
        await self.cancel()

    async def count_late(self) -> None:
        """Tie jobs that came after standing ones, in a transaction that could not."""
        swept = await self._sweeper.through(count_late, LATE)
        if swept.queues:
            self._worker.post(self._worker.started, swept.queues)

    async def cancel(self) -> None:
        """Go on with flows that were cancelled, by somebody who may have died or by a failure."""
        failed: Exception | None = None
        for flow, why in await self._store.arun(cancel_flow.unsettled):
            try:
                await self._cancel(flow, why)
            except Exception as error:
                if not about_a_row(error) and not unforeseen(error):
                    raise
                log.error("flow %s cannot be cancelled: %s", flow, error)
                failed = error
        if failed is not None:
            raise failed

    async def _cancel(self, flow: str, why: str) -> None:
        left = True
        while left and not self._worker.stopping:
            done = await self._store.arun(cancel_flow.go_on, flow, why)
            left = bool(done.ended or done.asked)  # what others have in hand: next time
            if done.asked:
                self._worker.keeper.renew_now()
            self._worker.tell("flow_cancelled", done.ended)
            self._worker.keeper.wake({CANCEL_SIGNAL, *done.queues} if left else set())
