"""Flow maintenance: link deferred jobs, apply requested cancels, continue interrupted ones."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

from ..ops import cancel_flow
from ..ops.cancel_requests import apply_cancel_requests
from ..ops.enqueue import CANCEL_SIGNAL
from ..ops.flow_repair import link_deferred
from ..store import Store
from .row_errors import is_row_error, is_unexpected
from .state import WorkerState
from .sweeper import Sweeper

if TYPE_CHECKING:
    from .maintenance import Signals

log = logging.getLogger("outlast.worker")

LINK_BATCH = 100  # jobs linked in one transaction, which locks all their prerequisites


class FlowMaintenance:
    def __init__(
        self,
        store: Store,
        sweeper: Sweeper,
        state: WorkerState,
        signals: Signals,
        counts: Counter[str],
    ) -> None:
        self._store = store
        self._sweeper = sweeper
        self._state = state
        self._signals = signals
        self._counts = counts

    async def run_once(self) -> None:
        """One pass, separate from the reclaim, so that a faulty flow delays no dead worker's
        job."""
        await self.link_deferred()
        await self.apply_cancel_requests()
        await self.continue_cancels()

    async def link_deferred(self) -> None:
        """Link jobs to existing prerequisites that a caller's transaction could not lock."""
        result = await self._sweeper.sweep(link_deferred, LINK_BATCH)
        if result.queues:
            self._signals.ready(result.queues)

    async def apply_cancel_requests(self) -> None:
        """Stop running jobs whose cancellation a caller's transaction has requested."""
        result = await self._sweeper.sweep(apply_cancel_requests, LINK_BATCH)
        if result.found:
            self._signals.cancelled()
            self._signals.notify({CANCEL_SIGNAL, *result.queues})

    async def continue_cancels(self) -> None:
        """Continue cancellations of flows that another process or a failure has begun."""
        failed: Exception | None = None
        for flow, why in await self._store.arun(cancel_flow.unfinished_cancels):
            try:
                await self._cancel(flow, why)
            except Exception as error:
                if not is_row_error(error) and not is_unexpected(error):
                    raise
                log.error("flow %s cannot be cancelled: %s", flow, error)
                failed = error
        if failed is not None:
            raise failed

    async def _cancel(self, flow: str, why: str) -> None:
        left = True
        while left and not self._state.stopping:
            done = await self._store.arun(cancel_flow.cancel_page, flow, why)
            left = bool(done.ended or done.stopping)  # jobs locked by others: in the next pass
            if done.stopping:
                self._signals.cancelled()
            self._counts["flow_cancelled"] += done.ended
            self._signals.notify({CANCEL_SIGNAL, *done.queues} if left else set())
