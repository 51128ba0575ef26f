"""Wake-ups that any worker does for the fleet: time-outs of waits, and signals that callers sent in
their own transactions."""

from __future__ import annotations

import json

from .operation import BEGIN, Op, Rows, Statement
from .reclaim import ReclaimResult


def wake_timed_out(limit: int = 500, skip: int = 0) -> Op[ReclaimResult]:
    """Start a page of jobs whose waits have timed out. Their next attempts decide the wait: until
    then, a signal wins."""
    rows: Rows = yield Statement("wake_timed_out", {"limit": limit, "skip": skip})
    return ReclaimResult(found=len(rows), healed=len(rows), queues={queue for _, queue in rows})


def deliver_signals(limit: int = 500, skip: int = 0) -> Op[ReclaimResult]:
    """Find the jobs of a page of committed signals, and start those that wait for one. A signal
    without a job is removed."""
    yield BEGIN
    taken: Rows = yield Statement("take_unseen_signals", {"limit": limit, "skip": skip})
    if not taken:
        return ReclaimResult()
    ids = json.dumps(sorted({id for (id,) in taken}))
    woken: Rows = yield Statement("wake_signalled", {"ids": ids})
    yield Statement("remove_lost_signals", {"ids": ids})
    return ReclaimResult(found=len(taken), healed=len(taken), queues={queue for _, queue in woken})
