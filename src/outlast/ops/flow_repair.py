"""Waiting jobs, counted anew from truth: what no operation of ours can leave behind, but a hand in
the tables can."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ..model.wait_check import WaitCheck
from .audit import LOWEST_ID, PAGE
from .dependents import notify_dependents
from .flow_links import FAILED_STATES, recount
from .operation import BEGIN, Op, Rows, Statement


def inconsistent_waits(after: str, limit: int = PAGE) -> Op[tuple[dict[str, list[str]], str]]:
    """Of a page of waiting jobs, those with whom something is wrong, by its name; and where the
    next page begins. One statement sees one moment: who is counted in the transaction that ends
    what it waits for is never seen in between."""
    rows: Rows = yield Statement("waiting_after", {"after": after, "limit": limit})
    found: dict[str, list[str]] = {}
    for row in rows:
        if fault := WaitCheck(*row).fault:
            found.setdefault(fault, []).append(row[0])
    return found, rows[-1][0] if len(rows) == limit else LOWEST_ID


def repair_waits(ids: Sequence[str]) -> Op[int]:
    """Hold them, count them in the next statement, and tell whomever an end by that concerns."""
    yield BEGIN
    held: Rows = yield Statement("hold_jobs", {"ids": json.dumps(list(ids))})
    rows = yield from recount(id for (id,) in held)
    yield from notify_dependents(
        [(id, state) for id, state, _, tied in rows if tied and state in FAILED_STATES]
    )
    return len(rows)
