"""Check the history of limited queues: never above a limit, never idle with room, in order.

A handler records when it enters and leaves its slot: after its claim has committed, and before its
outcome is sent. So the history never counts a slot for too long, and every excess is a violation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from ..lane_load import FIRST_LANE_RUNNING, FIRST_RUNNING, ORDERED, SLOTS
from ..ledger import LedgerEntry

CLAIM_LAG_S = 2.0  # seconds from a claim, under the limits of that time, until its handler starts
IDLE_LIMIT_S = 15.0  # seconds that a lane with jobs may have no handler


class SlotEvent(NamedTuple):
    at: float
    job: str
    fence: int
    enters: bool
    lane: tuple[str, str]
    n: int
    done: bool = False


@dataclass(slots=True)
class LaneHistory:
    """The state of the lanes at one time of the history."""

    limits: list[tuple[float, int, int]]  # start time, limit of the queue and of a lane; sorted
    inside: dict[tuple[str, int], SlotEvent] = field(default_factory=dict)

    def most(self, at: float) -> tuple[int, int]:
        """The highest limits in force shortly before: of the queue, and of a lane."""
        before = [one for one in self.limits if one[0] <= at - CLAIM_LAG_S]
        recent = [one for one in self.limits if at - CLAIM_LAG_S < one[0] <= at]
        known = [*before[-1:], *recent]
        return max(running for _, running, _ in known), max(lane for _, _, lane in known)


def judge_lanes(entries: Iterable[LedgerEntry], kills: Mapping[int, float]) -> list[str]:
    """Violations; `kills` has the time of each kill."""
    entries = list(entries)
    events = sorted(_events(entries, kills))
    history = LaneHistory(_limits(entries))
    wrong = [*_over(events, history), *_order(events), *_idle(events)]
    return [f"I6: {each}" for each in wrong]


def _events(entries: Iterable[LedgerEntry], kills: Mapping[int, float]) -> Iterator[SlotEvent]:
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
        yield SlotEvent(max(event.at, kills.get(pid, event.at)), *key, False, event.lane, event.n)


def _limits(entries: Iterable[LedgerEntry]) -> list[tuple[float, int, int]]:
    """A change takes effect between its request and its response: until then, the higher limit
    counts."""
    found = [(0.0, FIRST_RUNNING, FIRST_LANE_RUNNING)]
    for entry in entries:
        if entry.kind == "limits":
            running, lane, stage = entry.data
            _, old_running, old_lane = found[-1]
            if stage == "asked":
                running, lane = max(running, old_running), max(lane, old_lane)
            found.append((entry.at, running, lane))
    return found


def _over(events: Iterable[SlotEvent], history: LaneHistory) -> Iterator[str]:
    for event in events:
        key = event.job, event.fence
        if not event.enters:
            history.inside.pop(key, None)
            continue
        history.inside[key] = event
        queue = [one for one in history.inside.values() if one.lane[0] == event.lane[0]]
        lane = [one for one in queue if one.lane == event.lane]
        queue_limit, lane_limit = history.most(event.at)
        limit = 1 if event.lane[0] == ORDERED else lane_limit
        if len(lane) > limit:
            jobs, (of, name) = ", ".join(one.job for one in lane), event.lane
            yield f"{len(lane)} jobs run in lane {name} of {of}, {limit} may: {jobs}"
        if event.lane[0] == SLOTS and len(queue) > queue_limit:
            yield f"{len(queue)} jobs run in {SLOTS}, {queue_limit} may"


def _order(events: Iterable[SlotEvent]) -> Iterator[str]:
    """A job starts when all that were enqueued before it in its lane have ended."""
    numbers: dict[tuple[str, str], set[int]] = defaultdict(set)
    events = [event for event in events if event.lane[0] == ORDERED]
    for event in events:
        numbers[event.lane].add(event.n)
    done: dict[tuple[str, str], set[int]] = defaultdict(set)
    waiting = {lane: sorted(all_of, reverse=True) for lane, all_of in numbers.items()}
    for event in events:
        line = waiting[event.lane]
        while line and line[-1] in done[event.lane]:
            line.pop()
        if event.enters and line and event.n > line[-1]:
            yield f"{event.n} started in lane {event.lane[1]} before {line[-1]} had ended"
        if event.done:
            done[event.lane].add(event.n)


def _idle(events: Iterable[SlotEvent]) -> Iterator[str]:
    """While a lane has jobs to start, a handler runs every few seconds."""
    by_lane: dict[tuple[str, str], list[SlotEvent]] = defaultdict(list)
    for event in events:
        by_lane[event.lane].append(event)
    for (queue, lane), own in by_lane.items():
        inside = 0
        for before, after in pairwise(own):
            inside += 1 if before.enters else -1
            gap = after.at - before.at
            if inside <= 0 and after.fence > 1 and gap > IDLE_LIMIT_S:
                yield f"lane {lane} of {queue} was idle for {gap:.1f} s with a job that had begun"
