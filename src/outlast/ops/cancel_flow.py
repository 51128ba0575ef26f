"""A flow is cancelled as a whole: first it is said, then it is done, a few jobs at a time.

From the first moment on nothing joins the flow. Whoever said it goes on cancelling; if that process
dies, or if it was a failure that said it, every worker sees that something is left, and goes on.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from ..model.errors import FlowNotFound
from ..model.lifecycle import State
from .dependents import notify_dependents
from .job_actions import record_action
from .operation import BEGIN, Op, Rows, Statement

PAGE_JOBS = 200


@dataclass(frozen=True, slots=True)
class CancelProgress:
    """What one pass did."""

    ended: int = 0
    stopping: int = 0  # running: their owners were asked to stop
    left: bool = False  # something is still to be done
    queues: frozenset[str] = frozenset()  # where something became ready by it


def mark_cancelled(flow: str, by: str, reason: str) -> Op[str]:
    """Say that a flow is cancelled; returns why, as it will stand with its jobs. Saying it twice
    is saying it once."""
    yield BEGIN
    why = reason or f"its flow was cancelled by {by}"
    marked: Rows = yield Statement("cancel_flow", {"id": flow, "reason": why})
    rows: Rows = yield Statement("flow", {"id": flow})
    if not rows:
        raise FlowNotFound(flow=flow)
    if marked:
        yield from record_action("cancel-flow", [None], {"by": by, "reason": reason, "flow": flow})
    return rows[0][3] or why


def cancel_page(flow: str, why: str, limit: int = PAGE_JOBS) -> Op[CancelProgress]:
    """Cancel a few jobs of a flow that was said to be cancelled."""
    yield BEGIN
    error = {"type": "Cancelled", "message": why, "traceback": ""}
    given = {"flow": flow, "limit": limit, "error": json.dumps(error)}
    rows: Rows = yield Statement("cancel_members", given)
    ended = [(id, state, tied) for id, state, tied in rows if state == State.CANCELLED]
    queues = yield from notify_dependents([(id, state) for id, state, tied in ended if tied])
    settled: Rows = [] if rows else (yield Statement("settle_flow", {"flow": flow}))
    left = bool(rows) or not settled
    return CancelProgress(len(ended), len(rows) - len(ended), left, frozenset(queues))


def unfinished_cancels(limit: int = 100) -> Op[list[tuple[str, str]]]:
    """Flows that were cancelled and have jobs left that nobody has cancelled, and why."""
    rows: Rows = yield Statement("unsettled_flows", {"limit": limit})
    return [(id, reason or "its flow was cancelled") for id, reason in rows]
