"""Cancel in a caller's own transaction, which may stay open for long.

A queued job is cancelled in it: its row stays locked until the commit, so no worker claims it. The
row of a running job must not be locked: its worker could neither renew nor finish. A request is
stored instead, and any worker applies it after the commit.
"""

from __future__ import annotations

import json
from dataclasses import replace

from ..model.errors import JobNotFound, TooLate
from ..model.job import Job
from ..model.lifecycle import State
from .dependents import notify_dependents
from .job_actions import cancel, cancel_statement, record_action
from .operation import BEGIN, Op, Rows, Statement
from .reclaim import ReclaimResult
from .report import job as one_job


def cancel_in_transaction(id: str, by: str, reason: str) -> Op[Job]:
    """Cancel a queued job, or request the cancel of a running one. Idempotent."""
    yield BEGIN
    changed: Rows = yield cancel_statement(id, by, reason, asking=False)
    if changed == [(State.CANCELLED, True)]:
        yield from notify_dependents([(id, State.CANCELLED)])
    job = yield from one_job(id)
    if changed:
        yield from record_action("cancel", [id], {"by": by, "reason": reason, "state": "cancelled"})
    elif job.state is State.SUCCEEDED or job.state is State.DEAD:
        raise TooLate(job=id, state=job.state)
    elif job.state is not State.CANCELLED and not job.cancelling:
        yield Statement("request_cancel", {"id": id, "data": json.dumps([by, reason])})
        return replace(job, cancelling=True)
    return job


def apply_cancel_requests(limit: int = 100, skip: int = 0) -> Op[ReclaimResult]:
    """Apply a page of committed requests. Jobs that have ended since keep their final state; those
    that another transaction has locked are left to the next pass."""
    yield BEGIN
    taken: Rows = yield Statement("take_cancel_requests", {"limit": limit, "skip": skip})
    result = ReclaimResult(found=len(taken))
    for id, _, data in sorted(taken):  # rows are locked in the order of their ids, as everywhere
        by, reason = json.loads(data)
        try:
            yield from cancel(id, by, reason)
            result.healed += 1
        except (TooLate, JobNotFound):
            result.skipped += 1
    return result
