"""Reports on lanes: the slots of one lane, and the longest lanes of a queue. Reads only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..model.errors import JobNotFound
from ..model.humanize import format_duration, pluralize
from ..model.lane import QueueLimits
from .access import ALL_JOBS, Access
from .limits import limits
from .operation import Op, Rows, Statement
from .report import job

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
    tenant_paused: bool
    closed_for: float  # seconds; 0: it is open
    tokens: float | None  # None: no rate
    queue_tokens: float | None  # None: no rate
    held_by: str | None  # the head of an ordered lane, which continues first
    blocked_by: str | None  # a dead job that blocks an ordered lane
    holders: Sequence[str] = ()  # the first few running jobs of the lane that the reader may see
    reach: Access = ALL_JOBS  # of the reader
    hidden: frozenset[str] = frozenset()  # jobs that the reader does not see

    def obstacle(self, job: str) -> str | None:
        """Why no worker claims this job of the lane now; None: the lane does not delay it."""
        return self._stopped() or self._full() or self._out_of_order(job) or self._out_of_tokens()

    def _stopped(self) -> str | None:
        lane, queue = self.lane, self.limits.name
        if self.tenant_paused:
            return f"The tenant {lane} is paused{self._resume(f'--tenant {lane}')}"
        if self.paused:
            return f"Lane {lane} is paused{self._resume(f'{queue} --lane {lane}')}"
        if self.closed_for > 0:
            opens = format_duration(self.closed_for)
            return f"Lane {lane} is slowed down: it opens in {opens}."
        if self.blocked_by in self.hidden:
            return f"Lane {lane} runs in order, and another tenant's dead job blocks it."
        if self.blocked_by is not None:
            return (
                f"Lane {lane} runs in order, and its dead job {self.blocked_by} blocks it:"
                f" `outlast retry {self.blocked_by}` lets it run, and the others after it."
            )
        return None

    def _resume(self, what: str) -> str:
        """The command that resumes it; a tenant's token cannot."""
        return f": `outlast resume {what}` lets it run." if self.reach.tenant is None else "."

    def _full(self) -> str | None:
        lane, limits = self.lane, self.limits
        if limits.lane_batch is not None and self.running:
            return f"Lane {lane} runs in order, and {self.running} of its jobs are running."
        if limits.lane_running is not None and self.running >= limits.lane_running:
            named = ", ".join(self.holders)
            more = self.running - len(self.holders)
            rest = f" and {more} more" if named and more > 0 else ""
            whose = f" by {named}{rest}" if named else ""
            return _taken(self.running, limits.lane_running, f"lane {lane}", whose)
        if limits.running is not None and self.queue_running >= limits.running:
            return _taken(self.queue_running, limits.running, "its queue")
        return None

    def _out_of_order(self, job: str) -> str | None:
        if self.held_by in (None, job):
            return None
        which = "another tenant's job" if self.held_by in self.hidden else f"job {self.held_by}"
        return f"Lane {self.lane} runs in order: {which}, which started before, must end first."

    def _out_of_tokens(self) -> str | None:
        limits = self.limits
        for what, tokens, rate in (
            (f"Lane {self.lane}", self.tokens, limits.lane_rate),
            ("Its queue", self.queue_tokens, limits.rate),
        ):
            if tokens is not None and tokens < 1 and rate:
                wait = format_duration((1 - float(tokens)) / float(rate))
                return f"{what} has used up its rate: the next job starts in {wait}."
        return None


def _taken(running: int, limit: int, of: str, by: str = "") -> str:
    if limit == 0:
        return f"The limit of {of} is 0: no job of it may run."
    verb = "is" if limit == 1 else "are"
    return f"{running} of {pluralize(limit, 'slot')} of {of} {verb} taken{by}."


@dataclass(frozen=True, slots=True)
class LaneDepth:
    """A lane in a list."""

    lane: str
    ready: int
    oldest: float  # seconds since the oldest ready job became due
    running: int
    limit: int | None
    paused: bool


def lane_slots(queue: str, lane: str, now: float, reach: Access = ALL_JOBS) -> Op[LaneSlots | None]:
    """The limits and counts of one lane, as far as a reader may know; None: its queue has no
    limits."""
    rows: Rows = yield Statement("lane_slots", {"queue": queue, "lane": lane})
    if not rows:
        return None
    running, queue_running, paused, tenant_paused, opens_at, *rest = rows[0]
    tokens, queue_tokens, held_by, blocked_by = rest
    allowed = yield from _limits_of(queue)
    given = {"queue": queue, "lane": lane, "limit": MAX_NAMED_SLOTS, **reach.params}
    holders: Rows = yield Statement("lane_running", given)
    hidden = yield from _hidden([id for id in (held_by, blocked_by) if id is not None], reach)
    return LaneSlots(
        lane, allowed, int(running), int(queue_running), bool(paused), bool(tenant_paused),
        max(0.0, float(opens_at or 0.0) - now), tokens, queue_tokens, held_by, blocked_by,
        [id for (id,) in holders], reach, hidden,
    )  # fmt: skip


def _hidden(ids: Sequence[str], reach: Access) -> Op[frozenset[str]]:
    """The jobs that are outside the reader's access."""
    hidden = set[str]()
    for id in ids if reach != ALL_JOBS else ():
        try:
            yield from job(id, reach)
        except JobNotFound:
            hidden.add(id)
    return frozenset(hidden)


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
