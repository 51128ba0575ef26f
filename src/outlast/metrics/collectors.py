"""Collectors: samples of a worker, a supervisor and the tables, by the catalogue's names."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..model.lifecycle import Outcome, State
from ..ops.table_metrics import LIVE, QueueDepth, TableMetrics
from ..version import VERSION
from ..worker.logs import dropped
from ..worker.supervisor import Supervisor
from ..worker.worker import Worker
from ..worker.worker_metrics import DurationBuckets, WorkerMetrics
from .catalogue import DEADLY, RECLAIM_REASONS, RETRIED
from .labels import Labels, label
from .snapshot import TableSnapshot


@dataclass(frozen=True, slots=True)
class Sample:
    name: str
    value: float | DurationBuckets
    labels: tuple[str, ...] = ()


Samples = Iterator[Sample]

LANE_STATES = ("waiting", "throttled", "paused")
MAX_BREAKER_TASKS = 20  # tasks with labels of their own: with as many queues, at most 400 series

# The worker's own names of its counters.
COUNTERS = {
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
    "schedules_fired": "outlast_schedules_fired_total",
    "schedules_missed": "outlast_schedules_missed_total",
    "schedules_skipped": "outlast_schedules_skipped_total",
    "schedules_late": "outlast_schedules_late_total",
}
AUDIT_PREFIX = "audited "  # prefix of a class that the audit found


def process_samples(role: str, snapshot: TableSnapshot | None) -> Samples:
    yield Sample("outlast_info", 1, (VERSION, role))
    yield Sample("outlast_log_lines_dropped_total", dropped())
    if snapshot is not None:
        yield Sample("outlast_snapshot_age_seconds", snapshot.age)
        yield Sample("outlast_snapshot_cost_seconds", snapshot.cost)
        yield Sample("outlast_snapshot_failures_total", snapshot.failures)


# The tables


class TableCollector:
    """Samples of the tables. Remembers the names that it has exposed."""

    def __init__(self) -> None:
        self._queues = Labels()
        self._tasks = Labels(MAX_BREAKER_TASKS)
        self._breakers_seen: set[tuple[str, str]] = set()
        self._duties = Labels()
        self._sources = Labels()
        self._waits = Labels()

    def samples(self, measured: TableMetrics) -> Samples:
        dwell: dict[str, float] = {}
        for (queue, state), depth in self._depths(measured).items():
            yield Sample("outlast_jobs", depth.number, (queue, state))
            if state in (State.READY, State.SCHEDULED):
                dwell[queue] = max(dwell.get(queue, 0.0), depth.dwell)
            if state != State.DEAD:
                yield Sample("outlast_oldest_seconds", depth.oldest, (queue, state))
        for queue, seconds in dwell.items():
            yield Sample("outlast_dwell_seconds", seconds, (queue,))
        bounds = {self._queues(name): most for name, most in measured.most_waiting.items()}
        for queue, most in bounds.items():
            yield Sample("outlast_queue_most_waiting", most, (queue,))
        yield from self._limit_samples(measured)
        for queue in {self._queues(name) for name in measured.paused}:
            yield Sample("outlast_queue_paused", 1, (queue,))
        yield from self._breaker_samples(measured)
        yield from self._wait_samples(measured)
        yield Sample("outlast_expired_leases", measured.expired)
        yield Sample("outlast_expired_lease_seconds", measured.expired_for)
        for state in ("working", "draining", "silent"):
            yield Sample("outlast_workers", measured.workers.get(state, 0), (state,))
        yield Sample("outlast_archived_jobs", measured.archive.jobs)
        yield Sample("outlast_archive_oldest_seconds", measured.archive.oldest)
        yield Sample("outlast_archive_partitions", measured.archive.partitions)
        yield from self._schedule_samples(measured)
        yield from self._source_samples(measured)
        yield from self._duty_samples(measured)

    def _wait_samples(self, measured: TableMetrics) -> Samples:
        waits: dict[str, QueueDepth] = {}
        for name, depth in measured.waits.items():
            waits.setdefault(self._waits(name), QueueDepth()).add(depth)
        for wait, depth in waits.items():
            yield Sample("outlast_waiting_handlers", depth.number, (wait,))
            yield Sample("outlast_waiting_handlers_oldest_seconds", depth.oldest, (wait,))

    def _limit_samples(self, measured: TableMetrics) -> Samples:
        """Limits by queue. Lanes are not labels: there may be one for each customer."""
        for name, values in (
            ("outlast_queue_running_limit", measured.running_limits),
            ("outlast_queue_throttled", measured.throttled),
            ("outlast_queue_quota", {queue: most for queue, (most, _) in measured.quotas.items()}),
            ("outlast_queue_quota_used", {q: used for q, (_, used) in measured.quotas.items()}),
        ):
            sums: Counter[str] = Counter()
            for queue, number in values.items():
                sums[self._queues(queue)] += int(number)
            for queue, total in sums.items():
                yield Sample(name, total, (queue,))
        limited = {queue for queue, _ in measured.lanes}
        lanes: Counter[tuple[str, str]] = Counter()
        for queue in limited:
            for state in LANE_STATES:
                lanes[self._queues(queue), state] += measured.lanes.get((queue, state), 0)
        for labels, total in lanes.items():
            yield Sample("outlast_lanes", total, labels)

    def _source_samples(self, measured: TableMetrics) -> Samples:
        for name, source in measured.sources.items():
            label = self._sources(name)
            if source.lag is not None:
                yield Sample("outlast_source_lag", source.lag, (label,))
            yield Sample("outlast_source_failing", int(source.failing), (label,))
            for result, number in source.messages.items():
                yield Sample("outlast_source_messages_total", number, (label, result))

    def _breaker_samples(self, measured: TableMetrics) -> Samples:
        """Open breakers; a closed one that was open before stays exposed, as 0."""
        open_ones = {(self._queues(queue), self._tasks(task)) for queue, task in measured.breakers}
        self._breakers_seen |= open_ones
        for queue, task in sorted(self._breakers_seen):
            yield Sample("outlast_breaker_open", int((queue, task) in open_ones), (queue, task))

    def _schedule_samples(self, measured: TableMetrics) -> Samples:
        for state, number in measured.schedules.items():
            yield Sample("outlast_schedules", number, (state,))
        yield Sample("outlast_schedule_overdue_seconds", measured.schedule_overdue)

    def _depths(self, measured: TableMetrics) -> dict[tuple[str, str], QueueDepth]:
        """Depths by label: excess queues are merged into one. A queue that is empty now stays
        exposed, as 0."""
        labelled = [
            (self._queues(queue), state, depth) for (queue, state), depth in measured.depths.items()
        ]
        depths = {
            (queue, str(state)): QueueDepth() for queue in self._queues.given for state in LIVE
        }
        for queue, state, depth in labelled:
            depths[queue, state].add(depth)
        return depths

    def _duty_samples(self, measured: TableMetrics) -> Samples:
        for name, duty in measured.duties.items():
            labels = (self._duties(name),)
            yield Sample("outlast_duty_every_seconds", duty.every, labels)
            yield Sample("outlast_duty_last_success_seconds", duty.silent_for, labels)
            for what, number in duty.tally.items():
                yield Sample(f"outlast_duty_{what}_total", number, labels)


# A worker


def worker_samples(worker: Worker) -> Samples:
    yield from outcome_samples(worker.metrics)
    for what, name in COUNTERS.items():
        yield Sample(name, worker.counts[what])
    for what, number in tuple(worker.counts.items()):
        if what.startswith(AUDIT_PREFIX):
            yield Sample("outlast_audited_total", number, (what.removeprefix(AUDIT_PREFIX),))
    for queue, waits in tuple(worker.metrics.waits.items()):
        yield Sample("outlast_claims_total", sum(waits.counts), (label(queue),))
        yield Sample("outlast_wait_seconds", waits, (label(queue),))
    for task, runs in tuple(worker.metrics.runs.items()):
        yield Sample("outlast_run_seconds", runs, (label(task),))
    for (queue, task), number in tuple(worker.executor.breakers.openings.items()):
        yield Sample("outlast_breaker_openings_total", number, (label(queue), label(task)))
    for outbox in worker.app.declared_outboxes.values():
        for (queue, task, result), number in tuple(outbox.counts.items()):
            sample = label(queue), label(task), result
            yield Sample("outlast_outbox_messages_total", number, sample)
    yield Sample("outlast_in_hand", len(worker.in_flight))
    yield Sample("outlast_outcomes_held_up", worker.sink.set_aside_count)
    yield Sample("outlast_concurrency", worker.settings.concurrency)
    yield Sample("outlast_handlers_stuck", worker.executor.abandoned_threads)
    yield Sample("outlast_lease_seconds", worker.settings.lease)
    yield Sample("outlast_beat_age_seconds", _seconds_since(worker.shared.state.beat_at))
    yield from _heartbeat_samples(worker)


def outcome_samples(figures: WorkerMetrics) -> Samples:
    """Ends of attempts, and reclaimed jobs, by reason."""
    ended, succeeded = dict(figures.ended), figures.counts[State.SUCCEEDED]
    for outcome in Outcome:
        number = succeeded if outcome is Outcome.SUCCEEDED else 0
        number += _total(ended, outcome, *State)
        yield Sample("outlast_finishes_total", number, (outcome,))
    for outcome in map(Outcome, RETRIED):
        again = _total(ended, outcome, State.SCHEDULED, State.READY)
        yield Sample("outlast_retries_total", again, (outcome,))
    for outcome in map(Outcome, DEADLY):
        yield Sample("outlast_dead_total", _total(ended, outcome, State.DEAD), (outcome,))
    released = _total(ended, Outcome.RELEASED, State.READY, State.SCHEDULED)
    yield Sample("outlast_released_total", released + figures.counts["released"])
    reclaimed = dict.fromkeys(RECLAIM_REASONS, 0) | dict(figures.reclaimed)
    for way, number in reclaimed.items():
        yield Sample("outlast_reclaimed_total", number, way)
    yield Sample("outlast_buried_total", figures.counts["buried"])


def _heartbeat_samples(worker: Worker) -> Samples:
    loops = worker.leases.loops  # none before the database has been reached
    for loop in loops:
        yield Sample("outlast_loop_passes_total", loop.passes, (loop.name,))
        yield Sample("outlast_loop_failures_total", loop.failures, (loop.name,))
    late = _seconds_since(loops[0].succeeded_at) - loops[0].every if loops else 0.0
    yield Sample("outlast_renewal_lag_seconds", max(0.0, late))


# A supervisor


def supervisor_samples(supervisor: Supervisor, figures: WorkerMetrics) -> Samples:
    running = len(supervisor.running)
    yield Sample("outlast_children", running, ("running",))
    yield Sample("outlast_children", len(supervisor.children) - running, ("down",))
    exits: Mapping[str, int] = {"exit": 0, "signal": 0} | dict(supervisor.exits)
    for how, number in exits.items():
        yield Sample("outlast_child_exits_total", number, (how,))
    yield Sample("outlast_beat_age_seconds", _seconds_since(supervisor.beat_at))
    for sample in outcome_samples(figures):
        if sample.name in ("outlast_reclaimed_total", "outlast_dead_total", "outlast_buried_total"):
            yield sample


def _total(ended: Mapping[tuple[Outcome, State], int], outcome: Outcome, *states: State) -> Any:
    return sum(ended.get((outcome, state), 0) for state in states)


def _seconds_since(moment: float) -> float:
    return max(0.0, time.monotonic() - moment)
