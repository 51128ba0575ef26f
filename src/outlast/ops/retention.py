"""A queue whose ended jobs are kept for a shorter time than others are."""

from __future__ import annotations

import json

from .access import ALL_JOBS
from .blobs import Removed
from .duties import delete_dependents_rows
from .job_actions import record_action
from .operation import BEGIN, Op, Rows, Statement
from .report import clock

VISIBILITY_LAG_S = 60.0  # seconds after its end within which a job's row is surely there to be seen


def set_retention(queue: str, keep: float | None, by: str) -> Op[None]:
    """How many seconds ended jobs of a queue are kept at the most; None: as long as all others."""
    yield BEGIN
    changed: Rows = yield Statement("set_keep", {"queue": queue, "keep": keep})
    if changed:
        yield from record_action("keep", [None], {"by": by, "queue": queue, "keep": keep})


def queue_retentions() -> Op[list[tuple[str, float]]]:
    """Queues with a time of their own."""
    rows: Rows = yield Statement("queue_retentions")
    return [(queue, float(keep)) for queue, keep in rows]


def prune_queue(
    queue: str, keep: float, since: float, limit: int
) -> Op[tuple[Removed, float, bool]]:
    """Remove a small batch of a queue's jobs that ended between a moment and as long ago as it
    keeps them: how many went, where to go on, and whether there is more now."""
    until = (yield from clock()) - keep
    given = {"queue": queue, "since": since, "until": until, "limit": limit}
    found: Rows = yield Statement("ended_in_queue", given)
    yield BEGIN
    ids = json.dumps(sorted(id for id, _ in found))
    given = {"ids": ids, "older": keep, "state": None, **ALL_JOBS.params}
    rows: Rows = yield Statement("purge_jobs", given)
    gone = yield from delete_dependents_rows(rows)
    if len(found) < limit:
        return gone, max(since, until - VISIBILITY_LAG_S), False
    return gone, max(float(found[-1][1]), since + 1e-6), True
