"""Cancel a flow as a whole: first record the cancellation, then cancel its jobs page by page.

Once that record exists, no job joins the flow. The caller continues to cancel; if that process
dies, or if a failure caused the cancellation, every worker sees the remaining jobs and continues.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from ..model.errors import FlowNotFound
from ..model.lifecycle import State
from .dependents import notify_dependents
from .flow_report import FlowState
from .flow_report import flow as one_flow
from .job_actions import record_action
from .operation import BEGIN, Op, Rows, Statement

PAGE_JOBS = 200


@dataclass(frozen=True, slots=True)
class CancelProgress:
    """The result of one pass."""

    ended: int = 0
    stopping: int = 0  # running jobs whose owners were asked to stop
    left: bool = False  # jobs remain
    queues: frozenset[str] = frozenset()  # with jobs that became ready


def mark_cancelled(flow: str, by: str, reason: str) -> Op[str]:
    """Record that a flow is cancelled; returns the reason that its jobs will show. Idempotent."""
    yield BEGIN
    why = reason or f"its flow was cancelled by {by}"
    marked: Rows = yield Statement("cancel_flow", {"id": flow, "reason": why})
    rows: Rows = yield Statement("flow", {"id": flow})
    if not rows:
        raise FlowNotFound(flow=flow)
    if marked:
        yield from record_action("cancel-flow", [None], {"by": by, "reason": reason, "flow": flow})
    return rows[0][3] or why


def cancel_in_transaction(flow: str, by: str, reason: str) -> Op[FlowState]:
    """Cancel a flow in one transaction, a caller's, which may stay open for long. Jobs that run,
    that others have locked, or that are not in its snapshot are left to workers after the commit:
    the flow is not marked as settled."""
    yield BEGIN
    why = yield from mark_cancelled(flow, by, reason)
    more = True
    while more:
        more = (yield from cancel_page(flow, why, ours=False)).left
    return (yield from one_flow(flow))


def cancel_page(
    flow: str, why: str, limit: int = PAGE_JOBS, ours: bool = True
) -> Op[CancelProgress]:
    """Cancel one page of jobs of a flow that is marked as cancelled; the last page completes the
    cancellation. A transaction that is not `ours` leaves running jobs and the completion to
    workers."""
    yield BEGIN
    error = {"type": "Cancelled", "message": why, "traceback": ""}
    given = {"flow": flow, "limit": limit, "error": json.dumps(error), "asking": ours}
    rows: Rows = yield Statement("cancel_members", given)
    ended = [(id, state, tied) for id, state, tied in rows if state == State.CANCELLED]
    queues = yield from notify_dependents([(id, state) for id, state, tied in ended if tied])
    left = bool(rows)
    if ours and not rows:
        settled: Rows = yield Statement("settle_flow", {"flow": flow})
        left = not settled
    return CancelProgress(len(ended), len(rows) - len(ended), left, frozenset(queues))


def unfinished_cancels(limit: int = 100) -> Op[list[tuple[str, str]]]:
    """Cancelled flows with jobs that are not cancelled yet, and the reasons."""
    rows: Rows = yield Statement("unsettled_flows", {"limit": limit})
    return [(id, reason or "its flow was cancelled") for id, reason in rows]
