"""Repair of waiting jobs: link those that a caller's transaction only marked, recount wrong ones.

A job that is enqueued after existing ones in a caller's own transaction is only marked: that
transaction may stay open for long, and cannot lock the rows of jobs that run meanwhile. Once it has
committed, any worker links the job to its prerequisites and counts which of them have ended.

Wrong counters come from manual changes: no operation of Outlast leaves them behind.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from ..model.wait_check import WaitCheck
from .archive import restore
from .audit import LOWEST_ID, PAGE
from .dependents import apply_counted, notify_dependents
from .flow_links import FAILED_STATES, recount
from .operation import BEGIN, Op, Rows, Statement
from .reclaim import ReclaimResult


def inconsistent_waits(after: str, limit: int = PAGE) -> Op[tuple[dict[str, list[str]], str]]:
    """The faulty jobs of a page of waiting jobs, by fault, and the cursor of the next page. One
    statement sees one snapshot: a count that changes in the transaction that ends a prerequisite is
    never seen in between."""
    rows: Rows = yield Statement("waiting_after", {"after": after, "limit": limit})
    found: dict[str, list[str]] = {}
    for row in rows:
        if fault := WaitCheck(*row).fault:
            found.setdefault(fault, []).append(row[0])
    return found, rows[-1][0] if len(rows) == limit else LOWEST_ID


def repair_waits(ids: Sequence[str]) -> Op[int]:
    """Lock the jobs, recount them in the next statement, and notify the dependents of those that
    end by it."""
    yield BEGIN
    held: Rows = yield Statement("hold_jobs", {"ids": json.dumps(list(ids))})
    yield from _restore_prerequisites([id for (id,) in held])
    rows = yield from recount(id for (id,) in held)
    yield from notify_dependents(
        [(id, state) for id, state, _, tied in rows if tied and state in FAILED_STATES]
    )
    return len(rows)


def _restore_prerequisites(ids: Sequence[str]) -> Op[None]:
    """Move archived prerequisites back: a prerequisite in the archive is not a missing one."""
    rows: Rows = yield Statement("missing_prerequisites", {"ids": json.dumps(list(ids))})
    yield from restore([id for (id,) in rows])


def link_deferred(limit: int = 100, skip: int = 0) -> Op[ReclaimResult]:
    """Link a page of marked jobs, after skipping those known to fail; also returns the queues in
    which jobs became ready. Prerequisites are locked first, then the jobs, in the same order as a
    finish."""
    yield BEGIN
    found: Rows = yield Statement("find_unlinked", {"limit": limit, "skip": skip})
    if not found:
        return ReclaimResult()
    before = {"ids": json.dumps(sorted({job for _, job in found if job}))}
    known: Rows = yield Statement("hold_prerequisites", before)
    yield from restore({job for _, job in found if job}.difference(id for id, _ in known))
    yield Statement("mark_has_dependents", before)
    ids = sorted({id for id, _ in found})
    held: Rows = yield Statement("hold_unlinked", {"ids": json.dumps(ids)})
    unlinked = [id for (id,) in held]
    yield Statement("mark_linked", {"ids": json.dumps(unlinked)})
    queues = yield from apply_counted([], (yield from recount(unlinked)))
    return ReclaimResult(
        found=len(ids), healed=len(unlinked), skipped=len(ids) - len(unlinked), queues=queues
    )
