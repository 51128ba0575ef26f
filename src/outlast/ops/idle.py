"""Idleness: whether there is anything left to do now, and when there will be."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from .fire import next_due
from .operation import Op, Rows, Statement


class NextMoments(NamedTuple):
    """Times in seconds since 1970, by the database's clock; None: there is none."""

    clock: float
    job: float | None  # the next scheduled job
    expiry: float | None
    probe: float | None  # of an open breaker
    wait: float | None  # the time-out of a handler's wait
    schedule: float | None  # of the caller's tasks


def next_moments(tasks: Sequence[str]) -> Op[NextMoments]:
    """When the next job, expiry, probe and schedule of these tasks are due."""
    rows: Rows = yield Statement("next_moments")
    schedule, _ = yield from next_due(tasks)
    clock, job, expiry, probe, wait = rows[0]
    return NextMoments(clock, job, expiry, probe, wait, schedule)


def due_elsewhere(tasks: Sequence[str], queues: Collection[str] | None) -> Op[bool]:
    """Whether a job of these queues (all, if None) runs somewhere, or a schedule of these tasks is
    due and has not fired yet."""
    rows: Rows = yield Statement("running_queues")
    if any(queues is None or queue in queues for (queue,) in rows):
        return True
    due_at, now = yield from next_due(tasks)
    return due_at is not None and due_at <= now
