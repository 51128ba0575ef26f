"""Check the history of schedules: one job per tick, none missing, no overlapping runs. Pure.

Handlers record their runs, the operator the requests and responses of its calls, and the campaign
the offset of the database's clock. The expected ticks follow from these records; the tables only
show which of them have jobs. Ticks close to a call or a step are not judged:

        request ── response               request ── response
    ──────┴───────────┴───────────────────────┴───────────┴──▶
                       └─ a tick here has a job ─┘
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from ...model.schedule import ScheduleSpec
from ...model.ticks import as_key
from ..ledger import LedgerEntry
from .clock_history import ClockHistory, Reached
from .kill_times import KillTimes
from .schedule_history import SETTLE_S, Interval, ScheduleHistory, TickJob, read_histories

FIRE_LAG_S = 8.0  # seconds from a tick until a worker has fired it, despite kills
CANCEL_LAG_S = 8.0  # seconds from the next run's start until a cancelled one has stopped
TRANSACTION_S = 4.0  # seconds between two readings of the clock in one transaction
LATE_S = 1.0  # seconds beyond the grace time that a transaction may take


def judge_schedules(
    entries: Iterable[LedgerEntry], jobs: Iterable[TickJob], kills: KillTimes
) -> list[str]:
    """All violations; `kills` has the time of each process's kill."""
    entries = list(entries)
    clock = ClockHistory.read(entries)
    wrong = []
    for history in read_histories(entries, jobs, kills).values():
        wrong += [
            *_doubles(history),
            *_missing(history, clock),
            *_unwanted(history, clock),
            *_late(history, clock),
            *_overlapping(history),
            *_beyond_pause(history),
        ]
    return [f"I7: {each}" for each in wrong]


def _doubles(history: ScheduleHistory) -> Iterator[str]:
    """Ticks with more than one job, and jobs without a known tick."""
    by_tick: dict[float | None, list[str]] = defaultdict(list)
    for job in history.jobs.values():
        if not job.manual:
            by_tick[job.tick].append(job.id)
    for tick, ids in by_tick.items():
        if tick is None:
            yield f"{history.name}: no tick is known of {', '.join(sorted(ids))}"
        elif len(ids) > 1:
            yield f"{history.name}: {len(ids)} jobs have the tick {as_key(tick)}: {sorted(ids)}"


def _missing(history: ScheduleHistory, clock: ClockHistory) -> Iterator[str]:
    """Ticks without a job, unless a policy skips them."""
    have = history.ticks
    left_out = {tick for _, ticks in history.left_out for tick in ticks}
    lives = list(_lives(history, clock))
    previous: float | None = None  # the last tick that had to fire and did not, with missed="none"
    for tick, reached in _expected(history, clock):
        if tick in have:
            previous = None
        if tick in have or tick in left_out:
            continue
        if _is_replaced(history, clock, tick, reached) or _is_covered(history, reached, lives):
            continue
        if history.spec.missed == "none" and previous is None:
            previous = tick  # a single late tick may be skipped
            continue
        yield f"{history.name}: no job has the tick {as_key(tick)}"


def _expected(history: ScheduleHistory, clock: ClockHistory) -> Iterator[tuple[float, Reached]]:
    """Ticks that had to fire, with the time at which they were due."""
    for phase in history.phases:
        if phase.spec is None:
            continue
        start, end = phase.start + SETTLE_S, phase.end - FIRE_LAG_S
        for tick in _ticks_shown(phase.spec, clock, start, end):
            reached = _due(history.spec, clock, tick)
            if (
                reached is not None
                and start <= reached.at <= end
                and not clock.went_back(reached.at - FIRE_LAG_S, reached.at + FIRE_LAG_S)
            ):
                yield tick, reached


def _ticks_shown(
    spec: ScheduleSpec, clock: ClockHistory, start: float, end: float
) -> Iterator[float]:
    """All ticks that the clock reached in a span."""
    if start >= end:
        return
    moments = [start, end, *(at for at, _ in clock.steps if start <= at <= end)]
    shown = [clock.shown(at) for at in moments]
    shown += [clock.shown(at - 0.001) for at in moments]
    for tick in spec.ticks(min(shown) - 1.0):
        if tick > max(shown):
            return
        yield tick


def _due(spec: ScheduleSpec, clock: ClockHistory, tick: float) -> Reached | None:
    """When a tick had to fire. If the clock jumped over a tick, it is due when the clock reaches it
    again; otherwise only the first time counts."""
    times = clock.reached(tick)
    if not times:
        return None
    first, second = times[0], times[1] if len(times) > 1 else None
    if first.jumped and spec.overlap == "allow":
        if spec.missed == "all":
            return first
        return second if second is not None and not second.jumped else None
    return None if first.jumped else first


def _is_replaced(
    history: ScheduleHistory, clock: ClockHistory, tick: float, reached: Reached
) -> bool:
    """Whether a later tick fired instead: of several due ticks, the latest one fires."""
    if history.spec.missed == "all" and history.spec.overlap != "cancel":
        return False
    until = max(clock.shown(reached.at + FIRE_LAG_S), tick + FIRE_LAG_S)
    return any(tick < other <= until for other in history.ticks)


def _lives(history: ScheduleHistory, clock: ClockHistory) -> Iterator[tuple[str, Interval]]:
    """The intervals in which each job may have been unfinished."""
    for id, job in history.jobs.items():
        runs = [run for _, run in history.runs.get(id, [])]
        starts = [run.start for run in runs]
        starts += [reached.at for reached in clock.reached(job.tick or job.created_at)]
        if starts:
            end = max([min(starts), *(run.end for run in runs)])
            yield id, Interval(min(starts), end + FIRE_LAG_S)


def _is_covered(
    history: ScheduleHistory, reached: Reached, lives: Sequence[tuple[str, Interval]]
) -> bool:
    """Whether an earlier run was unfinished, and the schedule's policy skips or queues the tick."""
    if history.spec.overlap not in ("skip", "queue"):
        return False
    near = Interval(reached.at, reached.at + FIRE_LAG_S)
    return any(life.overlap(near) >= 0.0 for _, life in lives)


def _unwanted(history: ScheduleHistory, clock: ClockHistory) -> Iterator[str]:
    """Ticks that fired although the schedule was paused or an operator had skipped them."""
    pauses = [p for p in history.phases if p.spec is None]
    for tick in sorted(history.ticks):
        times = clock.reached(tick)
        if history.backfilled(tick) or not times:
            continue
        if any(all(p.start + SETTLE_S <= t.at <= p.end for t in times) for p in pauses):
            yield f"{history.name}: the tick {as_key(tick)} fired during a pause"
        for asked, ticks in history.left_out:
            if tick in ticks and len(times) == 1 and times[0].at > asked:
                yield f"{history.name}: the tick {as_key(tick)} fired although it was skipped"


def _late(history: ScheduleHistory, clock: ClockHistory) -> Iterator[str]:
    """With missed="none": ticks that fired later than the grace time."""
    if history.spec.missed != "none":
        return
    for job in history.jobs.values():
        if job.manual or job.tick is None or history.backfilled(job.tick):
            continue
        late, allowed = job.created_at - job.tick, history.spec.grace + LATE_S
        # The clock may have stepped after it was found to be in time.
        steps = clock.steps_before(job.created_at, TRANSACTION_S)
        if late > allowed and not any(-LATE_S <= late - step <= allowed for step in steps):
            yield f"{history.name}: the tick {as_key(job.tick)} fired {late:.1f} s late"


def _overlapping(history: ScheduleHistory) -> Iterator[str]:
    """Concurrent runs where the policy forbids them; a cancelled run must stop soon."""
    if history.spec.overlap == "allow":
        return
    allowed = CANCEL_LAG_S if history.spec.overlap == "cancel" else 0.0
    runs = sorted(
        (interval, id) for id, all_of in history.own_runs().items() for _, interval in all_of
    )
    for n, (run, id) in enumerate(runs):
        for other, other_id in islice(runs, n + 1, None):
            if other.start >= run.end:
                break
            at_once = run.overlap(other)
            if other_id != id and at_once > allowed:
                yield f"{history.name}: {id} and {other_id} ran at once for {at_once:.1f} s"


def _beyond_pause(history: ScheduleHistory) -> Iterator[str]:
    """Schedules with more than one run waiting at a pause."""
    if history.spec.overlap == "allow":
        return
    first = {id: min(runs) for id, runs in history.own_runs().items()}
    for phase in history.phases:
        if phase.spec is not None:
            continue
        late = [
            id
            for id, (fence, run) in first.items()
            if fence == 1 and phase.start + SETTLE_S <= run.start <= phase.end
        ]
        if len(late) > 1:
            yield f"{history.name}: {len(late)} runs were waiting at a pause: {sorted(late)}"
