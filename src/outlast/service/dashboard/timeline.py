"""A job's attempts on a timeline from its enqueue to its end, or to now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from ...model.job import Job
from ...model.lifecycle import State
from ...ops.report import Attempt
from ...ops.wait_report import WaitRecord

MAX_BARS = 40  # attempts drawn; the list has all
WIDTH = 1000.0
MIN_BAR_WIDTH = 4.0  # keeps short attempts visible


@dataclass(frozen=True, slots=True)
class AttemptView:
    """One attempt on the page."""

    attempt: int
    outcome: str
    worker: str | None
    error: object
    started_at: datetime | None
    finished_at: datetime | None
    took: float | None


@dataclass(frozen=True, slots=True)
class TimelineBar:
    left: float
    width: float
    outcome: str


@dataclass(frozen=True, slots=True)
class TimelineGap:
    """A time in which the job waited without a worker."""

    left: float
    width: float
    text: str  # `waited 2.0 d for approval`


@dataclass(frozen=True, slots=True)
class Timeline:
    bars: list[TimelineBar]
    gaps: list[TimelineGap]
    length: float  # seconds
    undrawn: int


def attempt_views(job: Job, attempts: Sequence[Attempt], now: float) -> list[AttemptView]:
    """All attempts in order; a running or successful one is the last."""
    known = [
        AttemptView(
            one.attempt,
            one.outcome,
            one.worker,
            one.error,
            one.started_at,
            one.finished_at,
            _span(one.started_at, one.finished_at, now),
        )
        for one in attempts
    ]
    known.extend(_current_attempt(job, now))
    return known


def _current_attempt(job: Job, now: float) -> Iterator[AttemptView]:
    """The running or successful attempt, read from the job: only other attempts have rows."""
    if job.state in (State.RUNNING, State.SUCCEEDED) and job.started_at is not None:
        took = _span(job.started_at, job.finished_at, now)
        yield AttemptView(
            job.attempt, str(job.state), job.worker, None, job.started_at, job.finished_at, took
        )


def _span(began: datetime | None, ended: datetime | None, now: float) -> float | None:
    if began is None:
        return None
    return max(0.0, (now if ended is None else ended.timestamp()) - began.timestamp())


def timeline(
    job: Job, known: Sequence[AttemptView], waits: Sequence[WaitRecord], now: float
) -> Timeline:
    begin = job.created_at.timestamp()
    ends = [one.finished_at.timestamp() for one in known if one.finished_at]
    end = job.finished_at.timestamp() if job.finished_at else max([now, *ends])
    length = max(end - begin, 0.001)
    drawn = [one for one in known if one.started_at is not None][-MAX_BARS:]
    bars = [_bar(one, begin, length) for one in drawn]
    gaps = [_gap(wait, begin, length, end) for wait in waits[-MAX_BARS:]]
    return Timeline(bars, gaps, length, len(known) - len(drawn))


def _bar(one: AttemptView, begin: float, length: float) -> TimelineBar:
    assert one.started_at is not None
    left, width = _place(one.started_at.timestamp(), one.took or 0.0, begin, length)
    return TimelineBar(left, width, one.outcome)


def _gap(wait: WaitRecord, begin: float, length: float, end: float) -> TimelineGap:
    left, width = _place(wait.since.timestamp(), wait.spent(end), begin, length)
    return TimelineGap(left, width, wait.describe(end))


def _place(since: float, took: float, begin: float, length: float) -> tuple[float, float]:
    left = min(max((since - begin) / length, 0.0), 1.0) * WIDTH
    width = max(took / length * WIDTH, MIN_BAR_WIDTH)
    left = min(left, WIDTH - MIN_BAR_WIDTH)
    return round(left, 1), round(min(width, WIDTH - left), 1)
