"""Ended jobs are removed because somebody says so: the dead too, which nobody prunes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from .blobs import Removed
from .duties import clear_up
from .operate import note
from .reach import EVERYTHING, Reach
from .statement import BEGIN, Op, Rows, Statement


def purge(
    ids: Sequence[str],
    older: float,
    by: str,
    told: dict[str, Any],
    reach: Reach = EVERYTHING,
    state: str | None = None,
) -> Op[Removed]:
    """Remove those of the jobs that ended so many seconds ago (in one state, if given), with all
    that belongs to them; how many they were is on record, with what was `told` about the wish. What
    a flow still needs stays: what comes before jobs that are to end, or before dead ones that are
    not removed with it."""
    yield BEGIN
    given = {"ids": json.dumps(sorted(ids)), "older": older, "state": state, **reach.params}
    rows: Rows = yield Statement("purge_jobs", given)
    removed = yield from clear_up(rows)
    if rows:
        yield from note("purge", [None], {"by": by, "number": len(rows), **told})
    return removed
