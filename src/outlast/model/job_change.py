"""Changes that an operator makes to jobs that have not started: due time, priority, queue, lane."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self

from .errors import InvalidOption
from .lifecycle import State
from .options import Options, check_name, seconds
from .timestamps import to_epoch

RESCHEDULE, PRIORITIZE, MOVE = "reschedule", "prioritize", "move"


@dataclass(frozen=True, slots=True)
class JobChange:
    """One of three kinds of change, with its new value."""

    kind: str
    sets: dict[str, object]

    @classmethod
    def reschedule(cls, delay: float | timedelta | None, at: datetime | None) -> Self:
        """Make a job due after a delay by the database's clock, or at a given time."""
        if (delay is None) == (at is None):
            raise InvalidOption(option="delay", reason="or at must be given, and not both")
        return cls(RESCHEDULE, {"delay": seconds("delay", delay), "at": to_epoch("at", at)})

    @classmethod
    def prioritize(cls, priority: int) -> Self:
        if priority is None:
            raise InvalidOption(option="priority", reason="must be given")
        return cls(PRIORITIZE, {"priority": Options(priority=priority).priority})

    @classmethod
    def move(cls, to: str | None, lane: str | None = None) -> Self:
        """Put a job into another queue, or into another lane of its queue."""
        if (to is None) == (lane is None):
            raise InvalidOption(
                option="to", reason="must be the name of a queue; or give a lane, and not both"
            )
        if lane is not None:
            return cls(MOVE, {"lane": check_name("lane", lane)})
        return cls(MOVE, {"queue": check_name("queue", to)})

    @property
    def into_lane(self) -> bool:
        """Whether the change is a move within a queue."""
        return self.kind == MOVE and "lane" in self.sets

    @property
    def states(self) -> tuple[State, ...]:
        """The states of jobs that it applies to. A waiting job starts when its prerequisites
        end."""
        if self.kind == RESCHEDULE:
            return State.SCHEDULED, State.READY
        return State.WAITING, State.SCHEDULED, State.READY

    def check_source(self, queue: str | None) -> None:
        """Require a source queue for a move: jobs of two queues might have the same key, and a lane
        belongs to a queue."""
        if self.kind == MOVE and (queue is None or queue == self.sets.get("queue")):
            raise InvalidOption(option="queue", reason="must name the queue that the jobs leave")

    def as_json(self) -> dict[str, object]:
        """The change as recorded in the event."""
        return {name: value for name, value in self.sets.items() if value is not None}
