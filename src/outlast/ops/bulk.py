"""Bulk actions: redrive, remove or change some of the jobs that match a filter, and count the rest.

Jobs may change between the count and the action. The row decides: a job whose state has changed is
left alone and reported under its new state.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from ..model.bulk_count import (
    BLOCKED,
    KEY_TAKEN,
    NEEDED,
    NO_LANES,
    REMOVED,
    TOO_RECENT,
    UNIQUE_THERE,
    BulkCount,
)
from ..model.job_change import MOVE, PRIORITIZE, RESCHEDULE, JobChange
from . import archive
from .access import ALL_JOBS, Access
from .blobs import Removed
from .flow_links import FAILED_STATES
from .job_actions import record_action, redrive
from .operation import BEGIN, Op, Rows, Statement
from .report import HIGHEST_ID, Filter
from .retention import purge
from .unique_keys import keys_to_revive

_CHANGES = {RESCHEDULE: "reschedule_jobs", PRIORITIZE: "prioritize_jobs", MOVE: "move_jobs"}

_QUEUED_REASONS = (KEY_TAKEN, NO_LANES)  # reasons why a job that has not ended is left alone


def matching(which: Filter, before: str | None, limit: int) -> Op[list[str]]:
    """A page of the ids of jobs in one state, newest first, after a cursor."""
    given = asdict(which) | {"before": before or HIGHEST_ID, "limit": limit}
    past = Statement("past_ids", {name: given[name] for name in given if name != "state"})
    rows = yield from archive.with_past(Statement("ids_in_state", given), past, which.state)
    return [id for (id,) in rows[:limit]]


def redrive_some(
    ids: Sequence[str], state: str, by: str, action: str, reach: Access = ALL_JOBS
) -> Op[tuple[set[str], BulkCount]]:
    """Redrive the given jobs that are in this state; returns the ids of all redriven jobs, and the
    count. A job already redriven under the same action counts as done."""
    yield BEGIN
    before: Rows = yield Statement("read_prerequisites", {"ids": json.dumps(sorted(ids))})
    others = {id for id, found in before if found in FAILED_STATES and found != state}
    wanted = [id for id in ids if id not in others]
    revived = set((yield from redrive(wanted, by, action, reach=reach)))
    not_revived = set(ids) - revived
    keyless = (yield from keys_to_revive(sorted(not_revived))) if not_revived else {}
    left = yield from _why_left(not_revived.difference(keyless), state, 0.0, BLOCKED)
    left += Counter({KEY_TAKEN: len(keyless)})
    more = len(revived.difference(ids))
    return revived, BulkCount.of(len(revived), left, more)


def purge_some(
    ids: Sequence[str], state: str, older: float, by: str, selection: Mapping[str, object],
    reach: Access = ALL_JOBS,
) -> Op[tuple[Removed, BulkCount]]:  # fmt: skip
    """Remove the given jobs that are in this state and ended at least `older` seconds ago."""
    removed = yield from purge(ids, older, by, selection, reach, state)
    left = yield from _why_left(set(ids) - removed.ids, state, older, NEEDED)
    return removed, BulkCount.of(int(removed), left)


def change_some(
    ids: Sequence[str], state: str, change: JobChange, by: str, reach: Access = ALL_JOBS
) -> Op[BulkCount]:
    """Change the given jobs that are in this state; the change is recorded."""
    yield BEGIN
    given = {"ids": json.dumps(sorted(ids)), "state": state, **change.sets, **reach.params}
    statement = "move_to_lane" if change.into_lane else _CHANGES[change.kind]
    rows: Rows = yield Statement(statement, given)
    changed = {id for (id,) in rows}
    if changed:
        yield from record_action(change.kind, sorted(changed), {"by": by, **change.as_json()})
    rest = set(ids) - changed
    unique: Rows = []
    if rest and change.kind == MOVE and not change.into_lane:
        unique = yield Statement("unique_jobs", {"ids": json.dumps(sorted(rest))})
    blocked = NO_LANES if change.into_lane else KEY_TAKEN
    left = yield from _why_left(rest.difference(id for (id,) in unique), state, 0.0, blocked)
    return BulkCount.of(len(changed), left + Counter({UNIQUE_THERE: len(unique)}))


def _why_left(ids: set[str], state: str, older: float, blocked: str) -> Op[Counter[str]]:
    if not ids:
        return Counter()
    given = {"ids": json.dumps(sorted(ids)), "older": older}
    asked = Statement("states_by_age", given)
    rows = yield from archive.find(asked, "past_states_by_age", ids, older=older)
    reasons = Counter(
        found if found != state else blocked if old or blocked in _QUEUED_REASONS else TOO_RECENT
        for _, found, old in rows
    )
    return reasons + Counter({REMOVED: len(ids) - len(rows)})
