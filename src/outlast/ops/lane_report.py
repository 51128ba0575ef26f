"""Reports on lanes: the slots of one lane, and the longest lanes of a queue. Reads only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..model.humanize import format_duration, pluralize
from ..model.lane import QueueLimits
from .limits import limits
from .operation import Op, Rows, Statement

MAX_NAMED_SLOTS = 3  # running jobs named in an explanation
MAX_LANES_SHOWN = 50


@dataclass(frozen=True, slots=True)
class LaneSlots:
    """The limits that may delay the jobs of a lane."""

    lane: str
    limits: QueueLimits
    running: int
    queue_running: int
    paused: bool
    closed_for: float  # seconds; 0: open
    tokens: float | None  # None: no rate
    held_by: str | None  # the unfinished head of an ordered lane
    blocked_by: str | None  # the dead job that blocks an ordered lane
    holders: Sequence[str] = ()  # the first running jobs of the lane

    def obstacle(self, job: str) -> str | None:
        """Why no worker claims this job now; None: not because of its lane."""
        lane, limits = self.lane, self.limits
        if self.paused:
            return f"Lane {lane} is paused."
        if self.closed_for > 0:
            opens = format_duration(self.closed_for)
            return f"Lane {lane} is slowed down: it opens in {opens}."
        if self.blocked_by is not None:
            return (
                f"Lane {lane} runs in order, and its dead job {self.blocked_by} blocks it:"
                f" `outlast retry {self.blocked_by}` lets it run, and the others after it."
            )
        if limits.lane_running is not None and self.running >= limits.lane_running:
            return f"{_taken(self.running, limits.lane_running)} of lane {lane} {self._holders()}"
        if limits.running is not None and self.queue_running >= limits.running:
            return f"{_taken(self.queue_running, limits.running)} of its queue are taken."
        if self.held_by not in (None, job):
            first = f"job {self.held_by}, which started before, must end first"
            return f"Lane {lane} runs in order: {first}."
        if self.tokens is not None and self.tokens < 1 and limits.lane_rate:
            wait = format_duration((1 - self.tokens) / float(limits.lane_rate))
            return f"Lane {lane} has used up its rate: the next job starts in {wait}."
        return None

    def _holders(self) -> str:
        more = self.running - len(self.holders)
        named = ", ".join(self.holders) + (f" and {more} more" if more > 0 else "")
        return f"are taken by {named}." if named else "are taken."


def _taken(running: int, limit: int) -> str:
    return f"{running} of {pluralize(limit, 'slot')}"


@dataclass(frozen=True, slots=True)
class LaneDepth:
    """A lane in a list."""

    lane: str
    ready: int
    oldest: float  # seconds since the oldest ready job became due
    running: int
    limit: int | None
    paused: bool


def lane_slots(queue: str, lane: str, now: float) -> Op[LaneSlots | None]:
    """The state of one lane; None: its queue is not limited."""
    rows: Rows = yield Statement("lane_slots", {"queue": queue, "lane": lane})
    if not rows:
        return None
    running, queue_running, paused, opens_at, tokens, held_by, blocked_by = rows[0]
    allowed = yield from _limits_of(queue)
    given = {"queue": queue, "lane": lane, "limit": MAX_NAMED_SLOTS}
    holders: Rows = yield Statement("lane_running", given)
    return LaneSlots(
        lane, allowed, int(running), int(queue_running), bool(paused),
        max(0.0, float(opens_at or 0.0) - now), None if tokens is None else float(tokens),
        held_by, blocked_by, [id for (id,) in holders],
    )  # fmt: skip


def deepest_lanes(queue: str, limit: int = MAX_LANES_SHOWN) -> Op[list[LaneDepth]]:
    """The lanes of a queue with the most ready jobs."""
    rows: Rows = yield Statement("deepest_lanes", {"queue": queue, "limit": limit})
    allowed = yield from _limits_of(queue)
    return [
        LaneDepth(lane, int(ready), max(0.0, float(oldest)), int(running), allowed.lane_running,
                  bool(paused))
        for lane, ready, oldest, running, paused in rows
    ]  # fmt: skip


def _limits_of(queue: str) -> Op[QueueLimits]:
    found = yield from limits()
    return next((one.limits for one in found if one.queue == queue), QueueLimits(queue))
