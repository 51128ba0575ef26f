"""Circuit breakers in the database: opened, probed, closed. Openings and closings are on record."""

from __future__ import annotations

import json
from typing import Any

from ..model.breaker import OpenBreaker
from ..model.job import Claim, Hold
from .claim import in_order, read_breaker
from .operate import note
from .statement import BEGIN, Op, Rows, Statement

REACH = 10_000  # ready jobs among which a probe is chosen


def open_breaker(
    opened: OpenBreaker, message: str, by: str, wait: float
) -> Op[tuple[OpenBreaker | None, bool]]:
    """Open it; the breaker as it stands, and whether this call opened it. Of several workers that
    find the same outage one opens it. Sent again after a lost answer, it is the same opening."""
    yield BEGIN
    queue, task = opened.circuit
    given = {"queue": queue, "task": task, "opening": opened.opening, "kind": opened.kind}
    rows: Rows = yield Statement(
        "open_breaker", {**given, "message": message, "by": by, "wait": wait}
    )
    if rows:
        error = {"type": opened.kind, "message": message}
        yield from note("breaker-opened", [None], {"by": by, "queue": queue, "task": task,
                                                   "error": error})  # fmt: skip
    found: Rows = yield Statement("open_breaker_now", {"queue": queue, "task": task})
    standing = read_breaker(found[0]) if found else None
    return standing, standing is not None and standing.opening == opened.opening


def close_breaker(
    queue: str, task: str | None, opening: str | None, by: str
) -> Op[list[tuple[str, float]]]:
    """Close a breaker, or all of a queue: the tasks, and for how many seconds each was open.
    Closing twice is one close."""
    yield BEGIN
    rows: Rows = yield Statement(
        "close_breaker", {"queue": queue, "task": task, "opening": opening}
    )
    if not rows:
        return []
    now: Rows = yield Statement("clock")
    closed = [(closed, float(now[0][0]) - float(opened_at)) for _, closed, _, opened_at in rows]
    for closed_task, seconds in closed:
        told: dict[str, Any] = {"by": by, "queue": queue, "task": closed_task}
        yield from note("breaker-closed", [None], {**told, "open_for": round(seconds, 3)})
    return closed


def take_probe(
    opened: OpenBreaker,
    worker: str,
    lease: float,
    wait: float,
    last_life: bool = True,
) -> Op[list[Claim]]:
    """Claim one job as the probe of an open breaker, unless another worker of the fleet probes it
    or there is nothing to probe with."""
    yield BEGIN
    queue, task = opened.circuit
    asked: dict[str, Any] = {"queue": queue, "task": task, "last_life": last_life}
    asked |= {"tasks": json.dumps([task]), "known": True}
    guard = {"opening": opened.opening, "probes": opened.probes, "wait": wait}
    taken: Rows = yield Statement("take_probe", {**asked, **guard})
    if not taken:
        return []
    asked |= {"worker": worker, "lease": lease}
    # In turn: a long run of jobs that cannot succeed must not hold up the others.
    if opened.probes % 2 == 0:
        rows: Rows = yield Statement("claim_probe", asked)
    else:
        rows = yield Statement("claim_any_probe", {**asked, "reach": REACH})
    claims = in_order(rows)
    job, fence = claims[0].hold[:2] if claims else (None, None)
    yield Statement("set_probe", {"queue": queue, "task": task, "job": job, "fence": fence})
    return claims


def probe_failed(opened: OpenBreaker, hold: Hold, message: str, wait: float) -> Op[bool]:
    """The dependency is still away: the next probe waits from now on."""
    queue, task = opened.circuit
    job, fence = hold[:2]
    given = {"queue": queue, "task": task, "opening": opened.opening, "job": job, "fence": fence}
    rows: Rows = yield Statement("probe_failed", {**given, "message": message, "wait": wait})
    return bool(rows)
