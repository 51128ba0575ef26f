"""A job's attempts on a line of time, from when it was enqueued to its end, or to now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ...model.job import Job
from ...model.lifecycle import State
from ...ops.report import Attempt

MOST = 40  # attempts that are drawn; the list has all of them
WIDTH = 1000.0
NARROWEST = 4.0  # so that what took no time is seen


@dataclass(frozen=True, slots=True)
class Try:
    """One attempt as a page shows it."""

    attempt: int
    outcome: str
    worker: str | None
    error: Any
    started_at: datetime | None
    finished_at: datetime | None
    took: float | None


@dataclass(frozen=True, slots=True)
class Bar:
    left: float
    width: float
    outcome: str


@dataclass(frozen=True, slots=True)
class Timeline:
    bars: list[Bar]
    length: float  # seconds from one end to the other
    undrawn: int


def tries(job: Job, attempts: Sequence[Attempt], now: float) -> list[Try]:
    """All attempts, the first first; the one that runs, or that ended well, comes last."""
    known = [
        Try(one.attempt, one.outcome, one.worker, one.error, one.started_at, one.finished_at,
            _span(one.started_at, one.finished_at, now))
        for one in attempts
    ]  # fmt: skip
    known.extend(_last(job, now))
    return known


def _last(job: Job, now: float) -> Iterator[Try]:
    """Attempts that failed have rows of their own; this one is told by the job."""
    if job.state in (State.RUNNING, State.SUCCEEDED) and job.started_at is not None:
        took = _span(job.started_at, job.finished_at, now)
        yield Try(
            job.attempt, str(job.state), job.worker, None, job.started_at, job.finished_at, took
        )


def _span(began: datetime | None, ended: datetime | None, now: float) -> float | None:
    if began is None:
        return None
    return max(0.0, (now if ended is None else ended.timestamp()) - began.timestamp())


def timeline(job: Job, known: Sequence[Try], now: float) -> Timeline:
    begin = job.created_at.timestamp()
    ends = [one.finished_at.timestamp() for one in known if one.finished_at]
    end = job.finished_at.timestamp() if job.finished_at else max([now, *ends])
    length = max(end - begin, 0.001)
    drawn = [one for one in known if one.started_at is not None][-MOST:]
    return Timeline([_bar(one, begin, length) for one in drawn], length, len(known) - len(drawn))


def _bar(one: Try, begin: float, length: float) -> Bar:
    assert one.started_at is not None
    left = min(max((one.started_at.timestamp() - begin) / length, 0.0), 1.0) * WIDTH
    width = max((one.took or 0.0) / length * WIDTH, NARROWEST)
    left = min(left, WIDTH - NARROWEST)
    return Bar(round(left, 1), round(min(width, WIDTH - left), 1), one.outcome)
