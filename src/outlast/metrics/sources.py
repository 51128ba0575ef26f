"""What a worker, a supervisor and the tables have to say, as samples by the catalogue's names."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..model.lifecycle import Outcome, State
from ..ops.figures import LIVE, Depth, Measured
from ..version import VERSION
from ..worker.figures import Figures, Histogram
from ..worker.logs import dropped
from ..worker.supervisor import Supervisor
from ..worker.worker import Worker
from .catalogue import DEADLY, RETRIED, WAYS
from .labels import Labels, label
from .snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Sample:
    name: str
    value: float | Histogram
    labels: tuple[str, ...] = ()


Samples = Iterator[Sample]

BREAKER_TASKS = 20  # names that are told apart: with as many queues, 400 series at the most

# What a worker counts under its own names.
COUNTED = {
    "refused": "outlast_zombie_writes_refused_total",
    "lost": "outlast_claims_lost_total",
    "late": "outlast_claims_late_total",
    "deferred_for_memory": "outlast_claims_deferred_total",
    "unhandled": "outlast_unhandled_total",
    "abandoned": "outlast_abandoned_total",
    "overdue": "outlast_overdue_total",
    "woken": "outlast_wakeups_total",
    "turn_failed": "outlast_turn_failures_total",
    "strays": "outlast_strays_total",
    "unstorable": "outlast_outcomes_unstorable_total",
    "events_dropped": "outlast_events_dropped_total",
}
AUDITED = "audited "  # what comes before the name of a class that the audit found


def process(role: str, snapshot: Snapshot | None) -> Samples:
    yield Sample("outlast_info", 1, (VERSION, role))
    yield Sample("outlast_log_lines_dropped_total", dropped())
    if snapshot is not None:
        yield Sample("outlast_snapshot_age_seconds", snapshot.age)
        yield Sample("outlast_snapshot_cost_seconds", snapshot.cost)
        yield Sample("outlast_snapshot_failures_total", snapshot.failures)


# The tables


class Tables:
    """With the names that this process has met."""

    def __init__(self) -> None:
        self._queues = Labels()
        self._tasks = Labels(BREAKER_TASKS)
        self._circuits: set[tuple[str, str]] = set()
        self._duties = Labels()

    def samples(self, measured: Measured) -> Samples:
        dwell: dict[str, float] = {}
        for (queue, state), depth in self._depths(measured).items():
            yield Sample("outlast_jobs", depth.number, (queue, state))
            if state in (State.READY, State.SCHEDULED):
                dwell[queue] = max(dwell.get(queue, 0.0), depth.dwell)
            if state != State.DEAD:
                yield Sample("outlast_oldest_seconds", depth.oldest, (queue, state))
        for queue, seconds in dwell.items():
            yield Sample("outlast_dwell_seconds", seconds, (queue,))
        for queue in {self._queues(name) for name in measured.paused}:
            yield Sample("outlast_queue_paused", 1, (queue,))
        yield from self._breakers(measured)
        yield Sample("outlast_expired_leases", measured.expired)
        yield Sample("outlast_expired_lease_seconds", measured.expired_for)
        for state in ("working", "draining", "silent"):
            yield Sample("outlast_workers", measured.workers.get(state, 0), (state,))
        yield from self._duty_samples(measured)

    def _breakers(self, measured: Measured) -> Samples:
        """One that was open once and is closed now says so, as long as this process lives."""
        open_ones = {(self._queues(queue), self._tasks(task)) for queue, task in measured.breakers}
        self._circuits |= open_ones
        for queue, task in sorted(self._circuits):
            yield Sample("outlast_breaker_open", int((queue, task) in open_ones), (queue, task))

    def _depths(self, measured: Measured) -> dict[tuple[str, str], Depth]:
        """By label: queues whose names are too many are one. A queue that was seen once and is
        empty now says so, instead of being gone."""
        labelled = [
            (self._queues(queue), state, depth) for (queue, state), depth in measured.depths.items()
        ]
        depths = {(queue, str(state)): Depth() for queue in self._queues.told for state in LIVE}
        for queue, state, depth in labelled:
            depths[queue, state].add(depth)
        return depths

    def _duty_samples(self, measured: Measured) -> Samples:
        for name, duty in measured.duties.items():
            labels = (self._duties(name),)
            yield Sample("outlast_duty_every_seconds", duty.every, labels)
            yield Sample("outlast_duty_last_success_seconds", duty.silent_for, labels)
            for what, number in duty.tally.items():
                yield Sample(f"outlast_duty_{what}_total", number, labels)


# A worker


def working(worker: Worker) -> Samples:
    yield from lost_and_ended(worker.figures)
    for what, name in COUNTED.items():
        yield Sample(name, worker.counts[what])
    for what, number in tuple(worker.counts.items()):
        if what.startswith(AUDITED):
            yield Sample("outlast_audited_total", number, (what.removeprefix(AUDITED),))
    for queue, waits in tuple(worker.figures.waits.items()):
        yield Sample("outlast_claims_total", sum(waits.counts), (label(queue),))
        yield Sample("outlast_wait_seconds", waits, (label(queue),))
    for task, runs in tuple(worker.figures.runs.items()):
        yield Sample("outlast_run_seconds", runs, (label(task),))
    for (queue, task), number in tuple(worker.breakers.openings.items()):
        yield Sample("outlast_breaker_openings_total", number, (label(queue), label(task)))
    yield Sample("outlast_in_hand", len(worker.hands))
    yield Sample("outlast_outcomes_held_up", worker.returns.held_up)
    yield Sample("outlast_concurrency", worker.settings.concurrency)
    yield Sample("outlast_handlers_stuck", worker.carrier.stuck)
    yield Sample("outlast_lease_seconds", worker.settings.lease)
    yield Sample("outlast_beat_age_seconds", _since(worker.beat_at))
    yield from _keeping(worker)


def lost_and_ended(figures: Figures) -> Samples:
    """How attempts ended, and what was taken back from whom."""
    ended, succeeded = dict(figures.ended), figures.counts[State.SUCCEEDED]
    for outcome in Outcome:
        number = succeeded if outcome is Outcome.SUCCEEDED else 0
        number += _sum(ended, outcome, *State)
        yield Sample("outlast_finishes_total", number, (outcome,))
    for outcome in map(Outcome, RETRIED):
        again = _sum(ended, outcome, State.SCHEDULED, State.READY)
        yield Sample("outlast_retries_total", again, (outcome,))
    for outcome in map(Outcome, DEADLY):
        yield Sample("outlast_dead_total", _sum(ended, outcome, State.DEAD), (outcome,))
    released = _sum(ended, Outcome.RELEASED, State.READY, State.SCHEDULED)
    yield Sample("outlast_released_total", released + figures.counts["released"])
    reclaimed = dict.fromkeys(WAYS, 0) | dict(figures.reclaimed)
    for way, number in reclaimed.items():
        yield Sample("outlast_reclaimed_total", number, way)
    yield Sample("outlast_buried_total", figures.counts["buried"])


def _keeping(worker: Worker) -> Samples:
    keeper = getattr(worker, "keeper", None)  # it comes when the database has been reached
    loops = keeper.loops if keeper else []
    for loop in loops:
        yield Sample("outlast_loop_passes_total", loop.passes, (loop.name,))
        yield Sample("outlast_loop_failures_total", loop.failures, (loop.name,))
    late = _since(loops[0].succeeded_at) - loops[0].every if loops else 0.0
    yield Sample("outlast_renewal_lag_seconds", max(0.0, late))


# A supervisor


def supervising(supervisor: Supervisor, figures: Figures) -> Samples:
    running = len(supervisor.running)
    yield Sample("outlast_children", running, ("running",))
    yield Sample("outlast_children", len(supervisor.children) - running, ("down",))
    exits: Mapping[str, int] = {"exit": 0, "signal": 0} | dict(supervisor.exits)
    for how, number in exits.items():
        yield Sample("outlast_child_exits_total", number, (how,))
    yield Sample("outlast_beat_age_seconds", _since(supervisor.beat_at))
    for sample in lost_and_ended(figures):
        if sample.name in ("outlast_reclaimed_total", "outlast_dead_total", "outlast_buried_total"):
            yield sample


def _sum(ended: Mapping[tuple[Outcome, State], int], outcome: Outcome, *states: State) -> Any:
    return sum(ended.get((outcome, state), 0) for state in states)


def _since(moment: float) -> float:
    return max(0.0, time.monotonic() - moment)
