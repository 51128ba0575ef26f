"""Retry a flow: first reopen it, then redrive its failed jobs page by page. If the process dies
midway, the same call resumes.
"""

from __future__ import annotations

from ..model.errors import FlowClosed, FlowNotFound
from .audit import LOWEST_ID
from .job_actions import record_action, redrive
from .operation import BEGIN, Op, Rows, Statement

PAGE_JOBS = 200


def reopen(flow: str, by: str) -> Op[None]:
    """Clear the flow's cancellation and failures. Refused while it is being cancelled: jobs that
    were asked to stop would be left behind."""
    yield BEGIN
    yield Statement("reopen_flow", {"id": flow})
    rows: Rows = yield Statement("flow", {"id": flow})
    if not rows or rows[0][2] is not None:
        raise FlowNotFound(flow=flow)
    cancelling: Rows = yield Statement("still_cancelling", {"id": flow})
    if cancelling[0][0]:
        raise FlowClosed(
            f"Flow {flow} is still being cancelled: retry it when that is done.",
            flow=flow,
            reason="is still being cancelled",
        )
    yield from record_action("retry-flow", [None], {"by": by, "flow": flow})


def redrive_page(flow: str, after: str | None, by: str) -> Op[tuple[str | None, int]]:
    """Redrive a page of jobs; returns where to continue, and how many were redriven. Jobs cancelled
    or failed together since the flow was reopened stay so."""
    asked = {"id": flow, "after": after or LOWEST_ID, "limit": PAGE_JOBS}
    rows: Rows = yield Statement("broken_in_flow", asked)
    ids = [id for (id,) in rows]
    revived = (yield from redrive(ids, by, opens=False)) if ids else []
    return (ids[-1] if ids else None), len(revived)
