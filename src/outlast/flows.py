"""The verbs for flows: see one, cancel one as a whole."""

from __future__ import annotations

import asyncio
import time
from uuid import UUID

from .model.errors import FlowNotFound
from .ops import cancel_flow, flow_report
from .ops.flow_report import FlowState
from .store import Store

PAUSE = 0.02  # seconds before jobs that somebody else has in hand are tried again


class FlowVerbs:
    """What `Outlast` can do with flows."""

    store: Store

    def flow(self, id: str) -> FlowState:
        """A flow as it stands now: its state, and its jobs counted by theirs."""
        return self.store.run(flow_report.flow, flow_id(id))

    async def aflow(self, id: str) -> FlowState:
        return await self.store.arun(flow_report.flow, flow_id(id))

    def cancel_flow(self, id: str, reason: str = "") -> FlowState:
        """Cancel all of a flow: when this returns, whatever has not begun never will, and what runs
        was asked to stop. Cancelling twice is one cancel."""
        flow = flow_id(id)
        why = self.store.run(cancel_flow.declare, flow, self._actor(), reason)
        while (done := self.store.run(cancel_flow.go_on, flow, why)).left:
            if not done.ended and not done.asked:
                time.sleep(PAUSE)
        self._tell_owners()
        return self.flow(flow)

    async def acancel_flow(self, id: str, reason: str = "") -> FlowState:
        flow = flow_id(id)
        why = await self.store.arun(cancel_flow.declare, flow, self._actor(), reason)
        while (done := await self.store.arun(cancel_flow.go_on, flow, why)).left:
            if not done.ended and not done.asked:
                await asyncio.sleep(PAUSE)
        await self._atell_owners()
        return await self.aflow(flow)

    def _actor(self) -> str:
        raise NotImplementedError

    def _tell_owners(self) -> None:
        raise NotImplementedError

    async def _atell_owners(self) -> None:
        raise NotImplementedError


def flow_id(id: str) -> str:
    """A flow's id in its one spelling; anything else names no flow."""
    try:
        return str(UUID(str(id)))
    except ValueError:
        raise FlowNotFound(f"{id!r:.80} is not a flow's id", flow=id) from None
