"""The verbs for flows: see them, cancel one as a whole, give one a new life."""

from __future__ import annotations

import asyncio
import time
from uuid import UUID

from ..model.errors import FlowNotFound, InvalidOption, JobNotFound, StoreBusy
from ..model.job import Job
from ..ops import cancel_flow, flow_report, retry_flow
from ..ops.audit import LOWEST_ID
from ..ops.flow_report import FLOW_STATES, FlowState
from .base import ClientBase, actor
from .jobs import check_limit

RETRY_PAUSE_S = 0.02  # seconds before jobs that somebody else has in hand are tried again


class Flows(ClientBase):
    """What `Outlast` can do with flows."""

    def flow(self, id: str) -> FlowState:
        """A flow as it stands now: its state, and its jobs counted by theirs."""
        return self.store.run(flow_report.flow, flow_id(id))

    async def aflow(self, id: str) -> FlowState:
        return await self.store.arun(flow_report.flow, flow_id(id))

    def flows(
        self, *, state: str | None = None, before: str | None = None, limit: int = 100
    ) -> list[FlowState]:
        """Flows, newest first: all, or those in one state (see `FlowState.state`). For the next
        page, give the last one's id as `before`."""
        asked = _state(state), before and flow_id(before), check_limit(limit)
        return self.store.run(flow_report.flows, *asked)

    async def aflows(
        self, *, state: str | None = None, before: str | None = None, limit: int = 100
    ) -> list[FlowState]:
        asked = _state(state), before and flow_id(before), check_limit(limit)
        return await self.store.arun(flow_report.flows, *asked)

    def flow_jobs(self, id: str, *, after: str | None = None, limit: int = 1000) -> list[Job]:
        """The jobs of a flow, in the order they were enqueued. For the next page, give the last
        one's id as `after`."""
        asked = flow_id(id), _cursor(after), check_limit(limit)
        return self.store.run(flow_report.jobs_of, *asked)

    async def aflow_jobs(
        self, id: str, *, after: str | None = None, limit: int = 1000
    ) -> list[Job]:
        asked = flow_id(id), _cursor(after), check_limit(limit)
        return await self.store.arun(flow_report.jobs_of, *asked)

    def cancel_flow(self, id: str, reason: str = "") -> FlowState:
        """Cancel all of a flow: when this returns, whatever has not begun never will, and what runs
        was asked to stop. Cancelling twice is one cancel."""
        flow = flow_id(id)
        why = self.store.run(cancel_flow.mark_cancelled, flow, actor(), reason)
        deadline = _CancelDeadline(self.store.settings.deadline)
        while (done := self.store.run(cancel_flow.cancel_page, flow, why)).left:
            time.sleep(deadline.pause(done))
        self._notify_owners()
        return self.flow(flow)

    async def acancel_flow(self, id: str, reason: str = "") -> FlowState:
        flow = flow_id(id)
        why = await self.store.arun(cancel_flow.mark_cancelled, flow, actor(), reason)
        deadline = _CancelDeadline(self.store.settings.deadline)
        while (done := await self.store.arun(cancel_flow.cancel_page, flow, why)).left:  # noqa: ASYNC110
            await asyncio.sleep(deadline.pause(done))
        await self._anotify_owners()
        return await self.aflow(flow)

    def retry_flow(self, id: str) -> int:
        """Give all that is dead or cancelled in a flow a new life, and the flow with it; returns
        how many jobs. What has succeeded is not run again. In small transactions: run again, it
        just goes on."""
        flow, done, cursor = flow_id(id), 0, None
        self.store.run(retry_flow.reopen, flow, actor())
        while True:
            cursor, revived = self.store.run(retry_flow.redrive_page, flow, cursor, actor())
            done += revived
            if cursor is None:
                self._notify_owners()
                return done

    async def aretry_flow(self, id: str) -> int:
        flow, done, cursor = flow_id(id), 0, None
        await self.store.arun(retry_flow.reopen, flow, actor())
        while True:
            asked = flow, cursor, actor()
            cursor, revived = await self.store.arun(retry_flow.redrive_page, *asked)
            done += revived
            if cursor is None:
                await self._anotify_owners()
                return done


class _CancelDeadline:
    """How long to wait for jobs of a flow that somebody else's open transaction holds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until = time.monotonic() + seconds

    def pause(self, done: cancel_flow.CancelProgress) -> float:
        if done.ended or done.stopping:
            self._until = time.monotonic() + self._seconds
            return 0.0
        if time.monotonic() > self._until:
            raise StoreBusy(
                reason="an open transaction holds jobs of this flow. It is cancelled all the same:"
                " workers go on with it"
            )
        return RETRY_PAUSE_S


def flow_id(id: str) -> str:
    """A flow's id in its one spelling; anything else names no flow."""
    try:
        return str(UUID(str(id)))
    except ValueError:
        raise FlowNotFound(f"{id!r:.80} is not a flow's id", flow=id) from None


def _state(state: str | None) -> str | None:
    if state is not None and state not in FLOW_STATES:
        listed = ", ".join(FLOW_STATES)
        raise InvalidOption(option="state", reason=f"must be one of {listed}, not {state!r:.80}")
    return state


def _cursor(after: str | None) -> str:
    try:
        return LOWEST_ID if after is None else str(UUID(str(after)))
    except ValueError:
        raise JobNotFound(f"{after!r:.80} is not a job id", job=after) from None
