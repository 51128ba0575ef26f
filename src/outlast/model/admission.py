"""Admission: whether a bounded queue has room for new jobs, decided from an occasional count.

    room = most_waiting − ready jobs at the last count; every enqueue uses up part of it

Claims only add room, so the known room is never too large. When it is used up, the jobs are counted
again. Counting a hundred thousand jobs takes milliseconds and happens once a second.
"""

from __future__ import annotations

from dataclasses import dataclass

from .job import NewJob
from .lane import MAX_WAITING, TELL

ALWAYS_COUNTED_JOBS = 1000  # a queue this small is counted whenever it has no room
COUNTED_PER_S = 100_000  # for larger queues, over all processes


@dataclass(frozen=True, slots=True)
class QueueRoom:
    """The known state of one queue."""

    most_waiting: int | None
    overflow: str | None
    room: int
    waiting: int  # ready jobs at the last count
    age_s: float  # seconds since that count; negative: never counted, or the clock has stepped back

    @property
    def unbounded(self) -> bool:
        """Whether no limit was declared, or an operator has lifted it."""
        return self.most_waiting is None or self.overflow in (None, TELL)

    @property
    def fresh(self) -> bool:
        """Whether the last count is too recent to be repeated."""
        most = self.most_waiting or 0
        return most > ALWAYS_COUNTED_JOBS and 0 <= self.age_s < most / COUNTED_PER_S

    def counted(self, waiting: int) -> QueueRoom:
        """This state after a new count."""
        if self.unbounded:
            return QueueRoom(self.most_waiting, self.overflow, MAX_WAITING, 0, 0.0)
        room = max(0, (self.most_waiting or 0) - waiting)
        return QueueRoom(self.most_waiting, self.overflow, room, waiting, 0.0)


@dataclass(frozen=True, slots=True)
class Admission:
    """The decision about an enqueue: room for all of its jobs, or for some."""

    queue: str
    asked: int
    taken: int
    found: QueueRoom

    @property
    def missing(self) -> int:
        return self.asked - self.taken


def grant(queue: str, asked: int, found: QueueRoom) -> Admission:
    """Room for all jobs or, if the queue drops the rest, for as many as fit."""
    if asked <= found.room:
        return Admission(queue, asked, asked, found)
    drops = found.overflow in ("drop_oldest", "drop_new")
    return Admission(queue, asked, found.room if drops else 0, found)


def needs_room(job: NewJob, now: float) -> bool:
    """Whether a new job is ready at once. Others enter their queue later, without a check."""
    return not job.waits_for and not job.delay and (job.at is None or job.at <= now)
