"""Verbs for the limits of queues: change them and list them; store what the code declares."""

from __future__ import annotations

from contextlib import suppress
from typing import Unpack

from ..model.errors import NoDatabase
from ..model.lane import LimitOptions, checked_overrides
from ..model.options import check_name
from ..ops import limits as limit_actions
from ..ops.lane_report import LaneDepth, deepest_lanes
from ..ops.limits import LimitsInForce
from .faces import Face
from .verb_arguments import actor


async def limit(
    on: Face, queue: str, *, reset: bool = False, **changes: Unpack[LimitOptions]
) -> LimitsInForce:
    """Change limits of a queue at run time; None lifts one. They stay in force across deployments,
    until `reset=True` restores the declaration in code."""
    given = check_name("queue", queue), checked_overrides(changes), actor(), reset
    changed = await on.run(limit_actions.change_limits, *given)
    if changed.limits.has_quota:
        on.parts.quota_queues.add(queue)
    await on.notify([queue])
    return changed


async def limits(on: Face) -> list[LimitsInForce]:
    """The limits of all queues that have some, with their sources."""
    return await on.run(limit_actions.limits)


async def lanes(on: Face, queue: str) -> list[LaneDepth]:
    """The lanes of a limited queue with the most ready jobs."""
    return await on.run(deepest_lanes, check_name("queue", queue))


async def declare_queues(on: Face) -> None:
    """Store the limits that the code declares: once per process, before the first enqueue or
    worker."""
    if on.parts.undeclared:
        declared = tuple(on.parts.declared_queues.values())
        await on.run(limit_actions.declare, declared, actor())
        on.parts.undeclared = False


async def refresh_bounds(on: Face) -> None:
    """Load the queues that are bounded or have quotas, for a process that declares none of them
    itself."""
    with suppress(NoDatabase):
        found = [one.limits for one in await on.run(limit_actions.limits)]
        known = [*found, *on.parts.declared_queues.values()]
        on.parts.bounded_queues = {one.name for one in known if one.bounded}
        on.parts.quota_queues = {one.name for one in known if one.has_quota}
