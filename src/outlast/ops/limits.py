"""Limits of queues in the database: declared by code, changed by operators, recorded."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from ..model.lane import BY_TENANT, QueueLimits
from ..model.timestamps import to_datetime
from .job_actions import record_action
from .operation import BEGIN, Op, Rows, Statement, creates_database


@dataclass(frozen=True, slots=True)
class LimitsInForce:
    """The limits of a queue, with their sources."""

    queue: str
    limits: QueueLimits
    declared: QueueLimits  # by the latest deployment
    overrides: dict[str, object]  # by an operator, by field
    changed_at: datetime
    quota_used: int | None = None  # jobs that were admitted in this period; None: no quota


def limits() -> Op[list[LimitsInForce]]:
    """The limits of all queues that have or had some."""
    rows: Rows = yield Statement("queue_limits")
    return [_in_force(*row) for row in rows]


def tenant_lane_queues() -> Op[frozenset[str]]:
    """The queues whose lanes are tenants."""
    found = yield from limits()
    return frozenset(one.queue for one in found if one.limits.lane == BY_TENANT)


@creates_database
def declare(queues: Sequence[QueueLimits], by: str) -> Op[list[str]]:
    """Store the code's declarations that differ; returns the changed queues. Overrides stay."""
    rows: Rows = yield Statement("queue_limits")
    known = {name: declared for name, declared, *_ in rows}
    changed = [limits for limits in queues if known.get(limits.name) != _text(limits)]
    if changed:
        yield BEGIN
    for limits in sorted(changed, key=lambda limits: limits.name):
        _, overrides = yield from _hold(limits.name)
        yield from _set(limits, overrides)
        data = {"by": by, "queue": limits.name, "declared": limits.as_json()}
        yield from record_action("limits-declared", [None], data)
    return [limits.name for limits in changed]


@creates_database
def change_limits(
    queue: str, changes: Mapping[str, object], by: str, reset: bool = False
) -> Op[LimitsInForce]:
    """Override limits of a queue, or (`reset`) remove all overrides first. Setting the current
    values is no change."""
    yield BEGIN
    declared, before = yield from _hold(queue)
    overrides = ({} if reset else before) | dict(changes)
    replace(declared, **overrides)  # refuses contradictions
    if overrides != before:
        limits = yield from _set(declared, overrides)
        data = {"by": by, "queue": queue, "changes": dict(changes), "limits": limits.as_json()}
        yield from record_action("limits", [None], data | ({"reset": True} if reset else {}))
    rows: Rows = yield Statement("queue_limits")
    found = [_in_force(*row) for row in rows if row[0] == queue]
    return found[0] if found else LimitsInForce(queue, declared, declared, {}, datetime.min)


def _hold(queue: str) -> Op[tuple[QueueLimits, dict[str, Any]]]:
    """Declared and overridden limits, locked against claims under other limits."""
    yield Statement("lock_limits", {"queue": queue})
    rows: Rows = yield Statement("hold_queue_limits", {"queue": queue})
    declared, overrides = rows[0] if rows else (None, None)
    return QueueLimits.from_json(queue, declared), json.loads(overrides or "{}")


def _set(declared: QueueLimits, overrides: dict[str, object]) -> Op[QueueLimits]:
    limits = declared.with_overrides(overrides)
    # An operator's override may be reset: jobs keep their lanes until the code drops them.
    limited = limits.limited or declared.limited
    stored = {
        "declared": _text(declared),
        "overrides": json.dumps(overrides) if overrides else None,
    }
    yield Statement("set_limits", rows=[{**limits.row(), **stored, "limited": limited}])
    yield Statement("forget_room", {"queue": declared.name})  # counted for another limit
    if limited:
        yield Statement("adopt_running", {"queue": declared.name})
    return limits


def _text(limits: QueueLimits) -> str:
    return json.dumps(limits.as_json(), sort_keys=True)


def _in_force(
    name: str, declared: str | None, overrides: str | None, changed_at: float, used: int | None
) -> LimitsInForce:
    limits, changed = QueueLimits.from_json(name, declared), json.loads(overrides or "{}")
    at = to_datetime(changed_at)
    allowed = limits.with_overrides(changed)
    admitted = None if allowed.quota is None else int(used or 0)
    return LimitsInForce(name, allowed, limits, changed, at, admitted)
