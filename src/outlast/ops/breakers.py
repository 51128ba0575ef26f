"""Circuit breakers in the database: opened, probed, closed. Openings and closings are recorded."""

from __future__ import annotations

import json

from ..model.breaker import RELAPSE_S, Circuit, CloseReason, OpenBreaker
from ..model.claim import Claim, ClaimKey
from ..model.turns import MAX_LANES
from .claim import in_order, read_breaker
from .job_actions import record_action
from .lanes import LaneClaim, LaneTurn, claim_locked
from .operation import BEGIN, Op, Pipeline, Rows, Statement

PROBE_SCAN_ROWS = 10_000  # ready jobs among which a probe is chosen
PROBE_SOON_S = 300.0  # seconds: a scheduled job that is due by then can still be a probe
MAX_CLOSINGS = 100  # the latest closings that are searched for a breaker's


def open_breaker(
    opened: OpenBreaker, message: str, by: str, wait: float
) -> Op[tuple[OpenBreaker | None, bool]]:
    """Open a breaker; returns the breaker as stored, and whether this call opened it. Of several
    workers that detect the same outage one opens it. Repeated after a lost response, the call
    counts as the same opening."""
    yield BEGIN
    queue, task = opened.circuit
    given = {"queue": queue, "task": task, "opening": opened.opening, "kind": opened.kind}
    rows: Rows = yield Statement(
        "open_breaker", {**given, "message": message, "by": by, "wait": wait}
    )
    if rows:
        error = {"type": opened.kind, "message": message}
        yield from record_action("breaker-opened", [None], {"by": by, "queue": queue, "task": task,
                                                   "error": error})  # fmt: skip
    found: Rows = yield Statement("open_breaker_now", {"queue": queue, "task": task})
    stored = read_breaker(found[0]) if found else None
    return stored, stored is not None and stored.opening == opened.opening


def close_breaker(
    queue: str, task: str | None, opening: str | None, by: str
) -> Op[list[tuple[str, float]]]:
    """Close a breaker, or all of a queue; returns the tasks, and for how many seconds each was
    open. Idempotent."""
    yield BEGIN
    rows: Rows = yield Statement(
        "close_breaker", {"queue": queue, "task": task, "opening": opening}
    )
    reason = CloseReason.OPERATOR if opening is None else CloseReason.PROBE
    return (yield from _closed(rows, queue, by, reason))


def close_without_jobs(opened: OpenBreaker, by: str) -> Op[list[tuple[str, float]]]:
    """Close a breaker whose probe is due, if the task has no job to probe with."""
    yield BEGIN
    queue, task = opened.circuit
    given = {"queue": queue, "task": task, "opening": opened.opening, "soon": PROBE_SOON_S}
    rows: Rows = yield Statement("close_breaker_without_jobs", given)
    return (yield from _closed(rows, queue, by, CloseReason.NO_JOB))


def _closed(rows: Rows, queue: str, by: str, reason: CloseReason) -> Op[list[tuple[str, float]]]:
    if not rows:
        return []
    now: Rows = yield Statement("clock")
    closed = [(closed, float(now[0][0]) - float(opened_at)) for _, closed, _, opened_at in rows]
    for task, seconds in closed:
        data: dict[str, object] = {"by": by, "reason": str(reason), "queue": queue, "task": task}
        yield from record_action("breaker-closed", [None], {**data, "open_for": round(seconds, 3)})
    return closed


def closed_by_probe(circuit: Circuit) -> Op[bool]:
    """Whether a successful probe closed a breaker a moment ago."""
    rows: Rows = yield Statement("breaker_closings", {"within": RELAPSE_S, "limit": MAX_CLOSINGS})
    for (data,) in rows:
        event = json.loads(data)
        if (event.get("queue"), event.get("task")) == circuit:
            return bool(event.get("reason") == CloseReason.PROBE)
    return False


def take_probe(
    opened: OpenBreaker,
    worker: str,
    lease: float,
    wait: float,
    allow_one_crash_left: bool = True,
) -> Op[list[Claim]]:
    """Claim one job as the probe of an open breaker, unless another worker of the fleet probes it
    or there is nothing to probe with."""
    yield BEGIN
    queue, task = opened.circuit
    params: dict[str, object] = {"queue": queue, "task": task, "last_life": allow_one_crash_left}
    params |= {"tasks": json.dumps([task]), "known": True}
    guard = {"opening": opened.opening, "probes": opened.probes, "wait": wait}
    taken: Rows = yield Statement("take_probe", {**params, **guard})
    if not taken:
        return []
    params |= {"worker": worker, "lease": lease}
    ((limited,),) = taken
    claims = yield from _claim_probe(opened, params, bool(limited))
    job, fence = claims[0].claim_key[:2] if claims else (None, None)
    yield Statement("set_probe", {"queue": queue, "task": task, "job": job, "fence": fence})
    return claims


def _claim_probe(opened: OpenBreaker, params: dict[str, object], limited: bool) -> Op[list[Claim]]:
    if limited:
        where = {**opened.circuit._asdict(), "reach": PROBE_SCAN_ROWS, "lanes": MAX_LANES}
        lanes: Rows = yield Statement("probe_lanes", where)
        turn = LaneTurn(freed=tuple(lane for (lane,) in lanes))
        asked = LaneClaim({**params, "tenant": None}, opened.circuit.queue, 1, turn)
        answers: list[Rows] = yield Pipeline(asked.opening())
        return (yield from claim_locked(asked, answers, commits=False))
    # Alternate the order: a long run of jobs that cannot succeed must not block the others.
    if opened.probes % 2 == 0:
        rows: Rows = yield Statement("claim_probe", params)
    else:
        rows = yield Statement("claim_any_probe", {**params, "reach": PROBE_SCAN_ROWS})
    return in_order(rows)


def probe_failed(opened: OpenBreaker, hold: ClaimKey, message: str, wait: float) -> Op[bool]:
    """Record that the dependency is still down: the next probe waits from now on."""
    queue, task = opened.circuit
    job, fence = hold[:2]
    given = {"queue": queue, "task": task, "opening": opened.opening, "job": job, "fence": fence}
    rows: Rows = yield Statement("probe_failed", {**given, "message": message, "wait": wait})
    return bool(rows)
