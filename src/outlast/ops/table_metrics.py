"""Metrics read from the tables, in one statement, so that all are of one moment."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from ..model.breaker import Circuit
from ..model.lifecycle import State
from .archive import ARCHIVE_STATE, ArchiveState, archive_state_of
from .operation import Op, Pipeline, Statement

LIVE = (State.WAITING, State.SCHEDULED, State.READY, State.RUNNING, State.DEAD)


@dataclass(slots=True)
class QueueDepth:
    """The jobs of one queue in one state: their number, the age of the oldest, and the longest time
    that one has been due."""

    number: int = 0
    oldest: float = 0.0
    dwell: float = 0.0

    def add(self, other: QueueDepth) -> None:
        self.number += other.number
        self.oldest = max(self.oldest, other.oldest)
        self.dwell = max(self.dwell, other.dwell)


@dataclass(slots=True)
class DutyMetrics:
    every: float = 0.0
    silent_for: float = math.inf  # seconds since its last success
    tally: dict[str, int] = field(default_factory=dict)  # found, healed, skipped, failed


@dataclass(slots=True)
class SourceMetrics:
    lag: int | None = None  # messages at the broker; None: unknown
    failing: bool = False  # its last pass failed
    messages: dict[str, int] = field(default_factory=dict)  # new, known, undecodable


@dataclass(slots=True)
class TableMetrics:
    """The metrics of all tables at one moment."""

    depths: dict[tuple[str, str], QueueDepth] = field(default_factory=dict)  # by queue and state
    waits: dict[str, QueueDepth] = field(default_factory=dict)  # the most frequent, by name
    expired: int = 0  # expired leases that were not reclaimed
    expired_for: float = 0.0  # seconds since the first of these expired
    paused: list[str] = field(default_factory=list)
    most_waiting: dict[str, int] = field(default_factory=dict)  # by bounded queue
    running_limits: dict[str, int] = field(default_factory=dict)  # by queue
    lanes: dict[tuple[str, str], int] = field(default_factory=dict)  # by limited queue and state
    throttled: dict[str, bool] = field(default_factory=dict)  # by queue with a rate
    quotas: dict[str, tuple[int, int]] = field(default_factory=dict)  # allowed and used, by queue
    breakers: list[Circuit] = field(default_factory=list)  # open ones
    workers: dict[str, int] = field(default_factory=dict)  # by state; silent: without heartbeat
    duties: dict[str, DutyMetrics] = field(default_factory=dict)
    schedules: dict[str, int] = field(
        default_factory=lambda: {"active": 0, "paused": 0, "error": 0}
    )
    schedule_overdue: float = 0.0  # seconds since the first that did not fire was due
    sources: dict[str, SourceMetrics] = field(default_factory=dict)
    archive: ArchiveState = ArchiveState()

    def number(self, state: State) -> int:
        return sum(depth.number for (_, of), depth in self.depths.items() if of == state)


def read_table_metrics() -> Op[TableMetrics]:
    rows, *archived = yield Pipeline([Statement("table_metrics"), *ARCHIVE_STATE])
    measured = TableMetrics(archive=archive_state_of(*archived))
    for kind, name, state, number, first, second in rows:
        match kind:
            case "jobs":
                measured.depths[name, state] = QueueDepth(
                    int(number), max(0.0, first), max(0.0, second)
                )
            case "wait":
                measured.waits[name] = QueueDepth(int(number), max(0.0, first))
            case "expired":
                measured.expired, measured.expired_for = int(number), first
            case "paused":
                measured.paused.append(name)
            case "breaker":
                measured.breakers.append(Circuit(name, state))
            case "workers":
                measured.workers[state] = int(number)
            case "schedules":
                measured.schedules[state] = int(number)
                measured.schedule_overdue = max(measured.schedule_overdue, first)
            case "source":
                source = measured.sources.setdefault(name, SourceMetrics())
                source.messages[state] = int(number)
                if state == "new":
                    source.lag, source.failing = int(first) if first >= 0 else None, second > 0
            case "duty":
                _add_duty(
                    measured.duties.setdefault(name, DutyMetrics()), state, number, first, second
                )
            case _:
                _add_limit(measured, kind, name, state, number, first)
    return measured


def _add_limit(
    measured: TableMetrics, kind: str, queue: str, state: str, number: float, used: float
) -> None:
    match kind:
        case "most_waiting":
            measured.most_waiting[queue] = int(number)
        case "running_limit":
            measured.running_limits[queue] = int(number)
        case "lanes":
            measured.lanes[queue, state] = int(number)
        case "throttled":
            measured.throttled[queue] = bool(number)
        case "quota":
            measured.quotas[queue] = int(number), int(used)


def _add_duty(duty: DutyMetrics, what: str, number: float, every: float, ago: float) -> None:
    duty.tally[what] = int(number)
    if what == "found":
        duty.every, duty.silent_for = every, math.inf if ago < 0 else ago
