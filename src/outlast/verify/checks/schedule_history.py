"""Schedule history: phases, calls, jobs and runs of each schedule, by the ledger and the tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple

from ...model.schedule import ScheduleSpec
from ..ledger import LedgerEntry
from .kill_times import KillTimes

SETTLE_S = 1.0  # seconds after a call until its change is in force everywhere
TICK_CHANGES = ("pause", "resume", "skip", "change", "reset")


class TickJob(NamedTuple):
    """A job of a schedule, from the tables."""

    id: str
    schedule: str
    tick: float | None  # None: it has none
    manual: bool
    created_at: float  # by the database's clock


class Interval(NamedTuple):
    start: float
    end: float

    def overlap(self, other: Interval) -> float:
        return min(self.end, other.end) - max(self.start, other.start)


@dataclass(slots=True)
class Phase:
    """A span without changes of a schedule's ticks. Uncertain margins are left out."""

    start: float
    end: float
    spec: ScheduleSpec | None  # None: it was paused


@dataclass(slots=True)
class ScheduleHistory:
    """The history of one schedule."""

    name: str
    spec: ScheduleSpec  # its policies, which do not change
    phases: list[Phase] = field(default_factory=list)
    left_out: list[tuple[float, list[float]]] = field(
        default_factory=list
    )  # skipped, with the time
    jobs: dict[str, TickJob] = field(default_factory=dict)
    runs: dict[str, list[tuple[int, Interval]]] = field(default_factory=dict)  # fence, by job
    backfills: list[Interval] = field(default_factory=list)  # of ticks
    calls: list[float] = field(default_factory=list)  # when a run was requested

    @property
    def ticks(self) -> set[float]:
        """Ticks that have a job."""
        return {job.tick for job in self.jobs.values() if job.tick is not None and not job.manual}

    def backfilled(self, tick: float) -> bool:
        return any(span.start <= tick < span.end for span in self.backfills)

    def own_runs(self) -> dict[str, list[tuple[int, Interval]]]:
        """Runs of jobs that the schedule itself fired."""
        return {
            id: runs
            for id, runs in self.runs.items()
            if (job := self.jobs.get(id)) is not None
            and not job.manual
            and job.tick is not None
            and not self.backfilled(job.tick)
        }


def read_histories(
    entries: Sequence[LedgerEntry], jobs: Iterable[TickJob], kills: KillTimes
) -> dict[str, ScheduleHistory]:
    histories: dict[str, ScheduleHistory] = {}
    for entry in entries:
        if entry.kind == "schedule" and entry.data[0] == "stands":
            histories[entry.subject] = ScheduleHistory(entry.subject, _spec(entry.data[2]))
    for job in jobs:
        if job.schedule in histories:
            histories[job.schedule].jobs[job.id] = job
    for name, history in histories.items():
        calls = [e for e in entries if e.kind == "schedule" and e.subject == name]
        _read_calls(history, calls)
    _read_runs(histories, entries, kills)
    return histories


def _spec(facts: Mapping[str, object]) -> ScheduleSpec:
    return ScheduleSpec.of({name: facts[name] for name in ScheduleSpec().as_json()})


def _read_calls(history: ScheduleHistory, calls: Sequence[LedgerEntry]) -> None:
    spec: ScheduleSpec | None = None
    since = asked_at = math.inf
    for entry in calls:
        action, stage, facts = entry.data
        if action == "backfill" and stage == "asked":
            history.backfills.append(Interval(facts["start"], facts["end"]))
        elif action == "run" and stage == "asked":
            history.calls.append(entry.at)
        elif action == "stands":
            spec, since = history.spec, entry.at
        elif action in TICK_CHANGES and stage == "asked":
            history.phases.append(Phase(since, entry.at, spec))
            asked_at = entry.at
        elif action in TICK_CHANGES:
            spec, since = (None if action == "pause" else _spec(facts)), entry.at
            if action == "skip" and facts["next"] is not None:
                assert spec is not None
                history.left_out.append((asked_at, _before(spec, facts["next"], facts["n"])))
    if since < math.inf:
        history.phases.append(Phase(since, math.inf if spec is None else since, spec))


def _before(spec: ScheduleSpec, tick: float, n: int) -> list[float]:
    """The last n ticks before a tick."""
    return list(takewhile(lambda before: before < tick, spec.ticks(tick - 60.0)))[-n:]


def _read_runs(
    histories: Mapping[str, ScheduleHistory],
    entries: Sequence[LedgerEntry],
    kills: KillTimes,
) -> None:
    begun: dict[tuple[str, int], tuple[ScheduleHistory, LedgerEntry]] = {}
    for entry in entries:
        if entry.kind == "entered":
            begun[entry.subject, entry.fence] = histories[entry.data[0]], entry
        elif entry.kind == "left":
            history, entered = begun.pop((entry.subject, entry.fence))
            _add_run(history, entered, entry.at)
    for history, entered in begun.values():  # its process was killed inside
        _add_run(history, entered, kills.end_of(entered.pid, entered.at))


def _add_run(history: ScheduleHistory, entered: LedgerEntry, end: float) -> None:
    runs = history.runs.setdefault(entered.subject, [])
    runs.append((entered.fence, Interval(entered.at, end)))
