"""Fire a due schedule: which ticks get a job, and when it is due again.

next_at ≤ now ──▶ ticks until now ──▶ missed: once | none | all ──▶ overlap ──▶ jobs
                        └──▶ the first tick after the handled ones: next_at
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .fired_ticks import FiredTicks
from .schedule import ScheduleSpec
from .ticks import as_key

MAX_TICKS_PER_PASS = 20  # of one schedule, with missed="all"
MAX_COUNTED_TICKS = 60  # in one gap; a longer gap is skipped and counts as this many
MAX_ACTIVE_JOBS = 20  # of one schedule; overlap waits for these
NO_FIRED_TICKS = FiredTicks()
LATE_S = 60.0  # seconds after its tick; a later job counts as late


@dataclass(frozen=True, slots=True)
class Run:
    """An earlier job of a schedule that has not ended."""

    id: str
    started: bool  # it has been claimed at least once
    tick: str  # its name in notes


@dataclass(frozen=True, slots=True)
class DueTicks:
    """Due ticks: those to fire, the number not to fire, and the next tick."""

    ticks: tuple[float, ...]
    missed: int
    following: float | None


@dataclass(slots=True)
class Firing:
    """A decision: the jobs to insert, each with its prerequisites."""

    following: float | None
    ticks: tuple[float, ...] = ()  # handled ticks, with or without a job
    jobs: list[tuple[float, tuple[str, ...]]] = field(default_factory=list)
    cancel: tuple[str, ...] = ()
    missed: int = 0
    skipped: int = 0
    late: int = 0
    note: str | None = None  # why the latest tick has no job


def due_ticks(spec: ScheduleSpec, next_at: float, now: float) -> DueTicks:
    """The ticks between `next_at` and now that are to fire."""
    ticks, coming = [next_at], spec.ticks(next_at)
    bound = MAX_TICKS_PER_PASS if spec.missed == "all" else MAX_COUNTED_TICKS
    following = next(coming, None)
    while following is not None and following <= now and len(ticks) < bound:
        ticks.append(following)
        following = next(coming, None)
    if spec.missed == "all":
        return DueTicks(tuple(ticks), 0, following)
    latest = ticks[-1]
    if following is not None and following <= now:
        latest = spec.latest_tick(following, now) or following
        following = spec.next_tick(now)
    if spec.missed == "none" and now - latest > spec.grace:
        return DueTicks((), len(ticks), following)
    return DueTicks((latest,), len(ticks) - 1, following)


def decide_firing(
    spec: ScheduleSpec,
    next_at: float,
    now: float,
    active: Sequence[Run] = (),
    fired: FiredTicks = NO_FIRED_TICKS,
) -> Firing:
    """Decide about a due schedule, by its policies and its earlier runs."""
    due = _without_fired(due_ticks(spec, next_at, now), spec, fired)
    firing = Firing(due.following, due.ticks, missed=due.missed)
    if due.missed and not due.ticks:
        firing.note = f"missed: no worker could fire it within {spec.grace:g} s"
    for tick in due.ticks:
        _add_tick(firing, spec, tick, active)
    firing.late = sum(now - tick > LATE_S for tick, _ in firing.jobs)
    return firing


def _without_fired(due: DueTicks, spec: ScheduleSpec, fired: FiredTicks) -> DueTicks:
    """Drop ticks that fired before, by a clock that was ahead."""
    ticks, following = tuple(t for t in due.ticks if not fired.has(t)), due.following
    if following is not None and fired.has(following):
        following = fired.first_free(spec, following)
    return DueTicks(ticks, due.missed, following)


def _add_tick(firing: Firing, spec: ScheduleSpec, tick: float, active: Sequence[Run]) -> None:
    """The jobs after overlap: ticks of the same pass count as earlier runs, too."""
    earlier = [*active, *(Run("", False, as_key(before)) for before, _ in firing.jobs)]
    if spec.overlap == "cancel":
        firing.skipped += len(firing.jobs)
        firing.jobs = [(tick, ())]
        firing.cancel = tuple(run.id for run in active)
    elif not earlier or spec.overlap == "allow":
        firing.jobs.append((tick, ()))
    elif spec.overlap == "queue" and all(run.started for run in earlier):
        firing.jobs.append((tick, tuple(run.id for run in earlier)))
    else:
        firing.skipped += 1
        firing.note = _skip_note(earlier[-1], spec.overlap)


def _skip_note(run: Run, overlap: str) -> str:
    if overlap == "queue":
        return f"skipped: the run of {run.tick} is queued already"
    return f"skipped: the run of {run.tick} is still going"
