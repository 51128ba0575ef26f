"""Whether a bounded queue has room for new jobs: decided from a count that is seldom made.

    room = most_waiting − ready jobs, counted now and then; every enqueue takes its part of it

Claims only make more room than is known, so what was counted is never too much; when it is used up,
jobs are counted again. Counting a hundred thousand takes milliseconds, and is done once a second.
"""

from __future__ import annotations

from dataclasses import dataclass

from .job import NewJob
from .lane import MAX_WAITING, TELL

ALWAYS_COUNTED_JOBS = 1000  # so few are counted whenever there is no room
COUNTED_PER_S = 100_000  # of more: jobs counted in a second, by all processes together


@dataclass(frozen=True, slots=True)
class QueueRoom:
    """What is known of one queue."""

    most_waiting: int | None
    overflow: str | None
    room: int
    waiting: int  # ready jobs, when they were counted
    age_s: float  # seconds since then; below zero: never, or the clock has stepped back

    @property
    def unbounded(self) -> bool:
        """An operator has lifted the limit, or nothing was declared."""
        return self.most_waiting is None or self.overflow in (None, TELL)

    @property
    def fresh(self) -> bool:
        """Whether it was counted so lately that it is not done again."""
        most = self.most_waiting or 0
        return most > ALWAYS_COUNTED_JOBS and 0 <= self.age_s < most / COUNTED_PER_S

    def counted(self, waiting: int) -> QueueRoom:
        """The same after a count."""
        if self.unbounded:
            return QueueRoom(self.most_waiting, self.overflow, MAX_WAITING, 0, 0.0)
        room = max(0, (self.most_waiting or 0) - waiting)
        return QueueRoom(self.most_waiting, self.overflow, room, waiting, 0.0)


@dataclass(frozen=True, slots=True)
class Admission:
    """The answer to an enqueue: room for some of its jobs, or for all."""

    queue: str
    asked: int
    taken: int
    found: QueueRoom

    @property
    def missing(self) -> int:
        return self.asked - self.taken


def grant(queue: str, asked: int, found: QueueRoom) -> Admission:
    """Room for all, or, where the rest is dropped, for as many as fit."""
    if asked <= found.room:
        return Admission(queue, asked, asked, found)
    drops = found.overflow in ("drop_oldest", "drop_new")
    return Admission(queue, asked, found.room if drops else 0, found)


def needs_room(job: NewJob, now: float) -> bool:
    """Whether a new job is ready at once. Others enter their queue later, without a check."""
    return not job.waits_for and not job.delay and (job.at is None or job.at <= now)
