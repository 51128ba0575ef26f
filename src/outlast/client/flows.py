"""Verbs for flows: show them, cancel or redrive one as a whole."""

from __future__ import annotations

import time
from uuid import UUID

from ..model.errors import FlowNotFound, InvalidOption, JobNotFound, StoreBusy
from ..model.job import Job
from ..ops import cancel_flow as cancelling
from ..ops import flow_report
from ..ops import retry_flow as retrying
from ..ops.audit import LOWEST_ID
from ..ops.flow_report import FLOW_STATES, FlowState
from .faces import Face
from .verb_arguments import ANY_QUEUE, actor, check_limit, check_reason

RETRY_PAUSE_S = 0.02  # seconds between attempts at jobs that another transaction has locked


async def flow(on: Face, id: str | None) -> FlowState:
    """A flow's current state, and its jobs counted by state."""
    return await on.run(flow_report.flow, flow_id(id))


async def flows(
    on: Face, *, state: str | None = None, before: str | None = None, limit: int = 100
) -> list[FlowState]:
    """Flows, newest first: all, or those in one state (see `FlowState.state`). For the next page,
    pass the last one's id as `before`."""
    cursor = before and flow_id(before)
    return await on.run(flow_report.flows, _state(state), cursor, check_limit(limit))


async def flow_jobs(
    on: Face, id: str | None, *, after: str | None = None, limit: int = 1000
) -> list[Job]:
    """The jobs of a flow, in the order they were enqueued. For the next page, pass the last one's
    id as `after`."""
    return await on.run(flow_report.jobs_of, flow_id(id), _cursor(after), check_limit(limit))


async def cancel_flow(
    on: Face, id: str | None, reason: str = "", *, conn: object = None
) -> FlowState:
    """Cancel a whole flow: when this returns, jobs that have not started never will, and running
    ones are asked to stop. Cancelling twice is one cancel. With the caller's own connection, it
    happens if and when that transaction commits; running jobs, and those that another transaction
    holds meanwhile, are notified within a second after that."""
    id, reason = flow_id(id), check_reason(reason)
    if (conn := on.ambient(conn)) is not None:
        op = cancelling.cancel_in_transaction(id, actor(), reason)
        return await on.act_on(conn, op, lambda _: [ANY_QUEUE])
    why = await on.run(cancelling.mark_cancelled, id, actor(), reason)
    deadline = _CancelDeadline(on.store.settings.deadline)
    while (done := await on.run(cancelling.cancel_page, id, why)).left:
        await on.sleep(deadline.pause(done))
    await on.notify_owners()
    return await flow(on, id)


async def retry_flow(on: Face, id: str | None) -> int:
    """Redrive all dead and cancelled jobs of a flow, and reopen the flow; returns how many jobs.
    Succeeded jobs do not run again. In small transactions: if interrupted, run it again."""
    id, done, cursor = flow_id(id), 0, None
    await on.run(retrying.reopen, id, actor())
    while True:
        cursor, revived = await on.run(retrying.redrive_page, id, cursor, actor())
        done += revived
        if cursor is None:
            await on.notify_owners()
            return done


class _CancelDeadline:
    """The wait for jobs of a flow that another open transaction has locked."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until = time.monotonic() + seconds

    def pause(self, done: cancelling.CancelProgress) -> float:
        if done.ended or done.stopping:
            self._until = time.monotonic() + self._seconds
            return 0.0
        if time.monotonic() > self._until:
            raise StoreBusy(
                reason="an open transaction holds jobs of this flow. It is cancelled regardless:"
                " workers complete the cancel"
            )
        return RETRY_PAUSE_S


def flow_id(id: str | None) -> str:
    """Normalize a flow id, such as `job.flow`; other text names no flow."""
    if id is None:
        raise FlowNotFound("There is no flow None: `job.flow` of a job outside of flows", flow=None)
    try:
        return str(UUID(str(id)))
    except ValueError:
        raise FlowNotFound(f"{id!r:.80} is not a flow id", flow=id) from None


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
