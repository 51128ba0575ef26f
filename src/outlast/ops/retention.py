"""Retention: remove expired jobs, or those that an operator removes, with all their rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from . import archive
from .access import ALL_JOBS, Access
from .blobs import Removed
from .job_actions import record_action
from .operation import BEGIN, Op, Rows, Statement
from .report import clock

VISIBILITY_LAG_S = 60.0  # seconds after its end by which a job's row is visible


def prune(state: str, keep: float, limit: int) -> Op[Removed]:
    """Remove one small batch of jobs that ended long ago, with all their rows."""
    yield BEGIN
    rows: Rows = yield Statement("prune_jobs", {"state": state, "keep": keep, "limit": limit})
    return (yield from delete_dependents_rows(rows))


def set_retention(queue: str, keep: float | None, by: str) -> Op[None]:
    """Set the maximum seconds that ended jobs of a queue are kept; None: the default."""
    yield BEGIN
    changed: Rows = yield Statement("set_keep", {"queue": queue, "keep": keep})
    if changed:
        yield from record_action("keep", [None], {"by": by, "queue": queue, "keep": keep})


def queue_retentions() -> Op[list[tuple[str, float]]]:
    """Queues with a retention of their own."""
    rows: Rows = yield Statement("queue_retentions")
    return [(queue, float(keep)) for queue, keep in rows]


def prune_queue(
    queue: str, keep: float, since: float, limit: int
) -> Op[tuple[Removed, float, bool]]:
    """Remove a small batch of a queue's jobs that ended after a given time and are past its
    retention: how many were removed, where to continue, and whether more are due now."""
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


def purge(
    ids: Sequence[str],
    older: float,
    by: str,
    selection: Mapping[str, object],
    reach: Access = ALL_JOBS,
    state: str | None = None,
) -> Op[Removed]:
    """Remove the given jobs that ended at least `older` seconds ago (in one state, if given), with
    all their rows; the number and the `selection` are recorded. Jobs that a flow still needs stay:
    prerequisites of unfinished jobs, or of dead jobs that are not removed with them."""
    yield BEGIN
    given = {"ids": json.dumps(sorted(ids)), "older": older, "state": state, **reach.params}
    rows: Rows = yield Statement("purge_jobs", given)
    yield from delete_dependents_rows(rows)
    if archive.holds(state):
        rows = [
            *rows,
            *(yield from archive.remove(set(ids) - {row[0] for row in rows}, older, state, reach)),
        ]
    removed = Removed.of(rows)
    if rows:
        yield from record_action("purge", [None], {"by": by, "number": len(rows), **selection})
    return removed


def delete_dependents_rows(rows: Rows) -> Op[Removed]:
    """Delete the rows of removed jobs, by their ids and flows. The caller deletes their blobs after
    the commit."""
    removed = Removed.of(rows)
    if not rows:
        return removed
    ids = json.dumps([id for id, *_ in rows])
    yield Statement("prune_attempts", {"ids": ids})
    yield Statement("prune_events", {"ids": ids})
    yield Statement("prune_steps", {"ids": ids})
    yield Statement("prune_waits", {"ids": ids})
    yield Statement("prune_streams", {"ids": ids})
    yield Statement("prune_signals", {"ids": ids})
    yield Statement("prune_links", {"ids": ids})
    yield Statement("prune_edges", {"ids": ids})
    yield Statement("prune_ties", {"ids": ids})
    if keyed := [id for id, _, unique_mode, *_ in rows if unique_mode is not None]:
        yield Statement("release_unique_keys", {"ids": json.dumps(keyed)})
    if flows := {flow for _, flow, *_ in rows if flow}:
        yield Statement("prune_parts", {"ids": json.dumps(sorted(flows))})
        yield Statement("prune_flows", {"ids": json.dumps(sorted(flows))})
    return removed


def prune_workers(keep: float) -> Op[int]:
    rows: Rows = yield Statement("prune_workers", {"keep": keep})
    return len(rows)


def prune_incidents(keep: float, limit: int) -> Op[Removed]:
    """Remove a small batch of recorded incidents that belong to no job; actions of people stay."""
    rows: Rows = yield Statement("prune_incidents", {"keep": keep, "limit": limit})
    return Removed(len(rows))
