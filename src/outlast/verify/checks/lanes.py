"""Check the history of limited queues: never above a limit, never idle with room, in order.

A handler records when it enters and leaves its slot: after its claim has committed, and before its
outcome is sent. So the history never counts a slot for too long: every excess is a violation.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..lane_load import FEW, FIRST_LANE_RUNNING, FIRST_RUNNING, ORDERED, SLOTS, SLOW_LANES, WIDE
from ..ledger import LedgerEntry
from .kill_times import KillTimes

CLAIM_LAG_S = 2.0  # seconds from a claim, under its limits, until its handler begins
IDLE_LIMIT_S = 10.0  # seconds that jobs may wait despite room: the recovery from a kill

Lane = tuple[str, str]  # queue and lane


class SlotEvent(NamedTuple):
    at: float
    job: str
    fence: int
    enters: bool
    lane: Lane
    n: int
    done: bool = False


class LimitsAt(NamedTuple):
    """The limits of a queue and of its lanes from a time on."""

    at: float
    running: float
    lane: float


@dataclass(slots=True)
class LimitHistory:
    """The limits of one queue, by time."""

    changes: list[LimitsAt]

    def near(self, at: float) -> Sequence[LimitsAt]:
        """The limits in force shortly before a time."""
        first = bisect_right(self.changes, at - CLAIM_LAG_S, key=lambda one: one.at)
        last = bisect_right(self.changes, at, key=lambda one: one.at)
        return self.changes[max(0, first - 1) : last]

    def most(self, at: float) -> tuple[float, float]:
        """The highest limits of the queue and of a lane shortly before a time."""
        known = self.near(at)
        return max(one.running for one in known), max(one.lane for one in known)


def judge_lanes(entries: Iterable[LedgerEntry], kills: KillTimes) -> list[str]:
    """The violations of limits, order and turns."""
    entries = list(entries)
    events = sorted(_events(entries, kills))
    limits = _limits(entries)
    queued = [(entry.at, entry.subject, tuple(entry.data)) for entry in entries
              if entry.kind == "queued"]  # fmt: skip
    waits = list(_waits(events, queued))
    wrong = [*_over(events, limits), *_order(events), *_idle(waits), *_under(waits, limits)]
    return [f"I6: {each}" for each in wrong]


def _events(entries: Iterable[LedgerEntry], kills: KillTimes) -> Iterator[SlotEvent]:
    open_slots: dict[tuple[str, int], tuple[int, SlotEvent]] = {}
    for entry in entries:
        if entry.kind not in ("entered", "left", "failed"):
            continue
        queue, lane, n = entry.data
        key, enters = (entry.subject, entry.fence), entry.kind == "entered"
        done = entry.kind == "left"
        event = SlotEvent(entry.at, *key, enters, (queue, lane), n, done)
        if enters:
            open_slots[key] = entry.pid, event
        else:
            open_slots.pop(key, None)
        yield event
    for key, (pid, event) in open_slots.items():  # its process was killed inside
        yield SlotEvent(kills.end_of(pid, event.at), *key, False, event.lane, event.n)


def _limits(entries: Iterable[LedgerEntry]) -> dict[str, LimitHistory]:
    """The limits of each queue. A change takes effect between its request and its response: in that
    span, the higher limit counts."""
    found = {
        SLOTS: LimitHistory([LimitsAt(0.0, FIRST_RUNNING, FIRST_LANE_RUNNING)]),
        WIDE: LimitHistory([LimitsAt(0.0, math.inf, FIRST_LANE_RUNNING)]),
        FEW: LimitHistory([LimitsAt(0.0, math.inf, FIRST_LANE_RUNNING)]),
        ORDERED: LimitHistory([LimitsAt(0.0, math.inf, 1)]),
    }
    for entry in entries:
        if entry.kind == "limits":
            running, lane, stage = entry.data
            running = math.inf if running is None else running
            changes = found[entry.subject].changes
            if stage == "asked":
                running, lane = max(running, changes[-1].running), max(lane, changes[-1].lane)
            changes.append(LimitsAt(entry.at, running, lane))
    return found


def _over(events: Iterable[SlotEvent], limits: Mapping[str, LimitHistory]) -> Iterator[str]:
    inside: dict[tuple[str, int], SlotEvent] = {}
    for event in events:
        key = event.job, event.fence
        if not event.enters:
            inside.pop(key, None)
            continue
        inside[key] = event
        queue, name = event.lane
        in_queue = [one for one in inside.values() if one.lane[0] == queue]
        in_lane = [one for one in in_queue if one.lane == event.lane]
        queue_limit, lane_limit = limits[queue].most(event.at)
        if len(in_lane) > lane_limit:
            jobs = ", ".join(one.job for one in in_lane)
            yield f"{len(in_lane)} jobs run in lane {name} of {queue}, limit {lane_limit}: {jobs}"
        if len(in_queue) > queue_limit:
            yield f"{len(in_queue)} jobs run in {queue}, limit {queue_limit}"


def _order(events: Iterable[SlotEvent]) -> Iterator[str]:
    """Jobs that began before the jobs enqueued before them in their lane had ended."""
    numbers: dict[Lane, set[int]] = defaultdict(set)
    events = [event for event in events if event.lane[0] == ORDERED]
    for event in events:
        numbers[event.lane].add(event.n)
    done: dict[Lane, set[int]] = defaultdict(set)
    waiting = {lane: sorted(all_of, reverse=True) for lane, all_of in numbers.items()}
    for event in events:
        line = waiting[event.lane]
        while line and line[-1] in done[event.lane]:
            line.pop()
        if event.enters and line and event.n > line[-1]:
            yield f"{event.n} began in lane {event.lane[1]} before {line[-1]} had ended"
        if event.done:
            done[event.lane].add(event.n)


class LaneWait(NamedTuple):
    """A span in which jobs of a lane waited, from one event of the lane to its next."""

    lane: Lane
    start: float
    end: float
    inside: int
    entered: bool  # the event at its end


@dataclass(slots=True)
class _LaneState:
    waiting: set[str] = field(default_factory=set)
    inside: set[str] = field(default_factory=set)
    since: float = 0.0


def _waits(
    events: Iterable[SlotEvent], queued: Iterable[tuple[float, str, tuple[str, ...]]]
) -> Iterator[LaneWait]:
    """The waits of jobs: from the response to their caller, and again from an attempt's end."""
    responses = [SlotEvent(at, job, 0, False, (lane[0], lane[1]), 0) for at, job, lane in queued]
    lanes: dict[Lane, _LaneState] = defaultdict(_LaneState)
    begun: set[str] = set()  # perhaps before the response to their caller
    for event in sorted([*events, *responses]):
        state = lanes[event.lane]
        if state.waiting:
            inside = len(state.inside)
            yield LaneWait(event.lane, state.since, event.at, inside, event.enters)
        state.since = event.at
        if event.enters:
            begun.add(event.job)
            state.waiting.discard(event.job)
            state.inside.add(event.job)
        elif event.fence:
            state.inside.discard(event.job)
            if not event.done:
                state.waiting.add(event.job)
        elif event.job not in begun:
            state.waiting.add(event.job)


def _idle(waits: Iterable[LaneWait]) -> Iterator[str]:
    """Lanes in which jobs waited and none began for long: handlers are short, so there was room. A
    queue with a limit of its own counts as a whole, because its lanes wait for each other."""
    since: dict[Lane, float] = {}
    last: dict[Lane, float] = {}
    for wait in sorted(waits, key=lambda one: one.end):
        queue, lane = wait.lane
        key = (queue, "") if queue == SLOTS else wait.lane
        if wait.start > last.get(key, -math.inf):
            since[key] = wait.start  # nothing waited before
        last[key] = max(last.get(key, -math.inf), wait.end)
        if not wait.entered:
            continue
        gap, since[key] = wait.end - since[key], wait.end
        if gap > IDLE_LIMIT_S:
            where = f"lane {lane} of {queue}" if key[1] else queue
            yield f"{where} was idle for {gap:.1f} s while jobs waited"


def _under(waits: Iterable[LaneWait], limits: Mapping[str, LimitHistory]) -> Iterator[str]:
    """Lanes with long handlers that were below their limit for long while jobs waited."""
    since: dict[Lane, float] = {}
    last: dict[Lane, float] = {}
    for wait in waits:
        if wait.lane[0] != WIDE or wait.lane[1] not in SLOW_LANES:
            continue
        limit = min(one.lane for one in limits[WIDE].near(wait.end))
        if wait.inside >= limit or wait.start > last.get(wait.lane, -math.inf):
            since[wait.lane] = wait.end if wait.inside >= limit else wait.start
        last[wait.lane] = wait.end
        gap = wait.end - since[wait.lane]
        if gap > IDLE_LIMIT_S:
            since[wait.lane] = wait.end
            yield (
                f"lane {wait.lane[1]} of {WIDE} ran fewer than {limit} jobs for {gap:.1f} s while"
                " others waited"
            )
