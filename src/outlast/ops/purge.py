"""Ended jobs are removed because somebody says so: the dead too, which nobody prunes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from .access import ALL_JOBS, Access
from .blobs import Removed
from .duties import delete_dependents_rows
from .job_actions import record_action
from .operation import BEGIN, Op, Rows, Statement


def purge(
    ids: Sequence[str],
    older: float,
    by: str,
    selection: dict[str, Any],
    reach: Access = ALL_JOBS,
    state: str | None = None,
) -> Op[Removed]:
    """Remove those of the jobs that ended so many seconds ago (in one state, if given), with all
    that belongs to them; how many they were is on record, with what was `told` about the wish. What
    a flow still needs stays: what comes before jobs that are to end, or before dead ones that are
    not removed with it."""
    yield BEGIN
    given = {"ids": json.dumps(sorted(ids)), "older": older, "state": state, **reach.params}
    rows: Rows = yield Statement("purge_jobs", given)
    removed = yield from delete_dependents_rows(rows)
    if rows:
        yield from record_action("purge", [None], {"by": by, "number": len(rows), **selection})
    return removed
