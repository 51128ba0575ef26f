"""Which events a subscriber wants, and which of them it may see."""

from __future__ import annotations

from dataclasses import dataclass

from ...model.job import lenient_json
from ...ops.events import Told

STATED = frozenset({"attempt", "cancel"})  # what says what became of its job


@dataclass(frozen=True, slots=True)
class Wanted:
    """Empty means: whatever there is. `tenant` and `queues` are what the caller may see, and say
    nothing of what it asked for."""

    job: str | None = None
    kinds: frozenset[str] = frozenset()
    in_queues: frozenset[str] = frozenset()
    tasks: frozenset[str] = frozenset()
    states: frozenset[str] = frozenset()
    tenant: str | None = None
    queues: frozenset[str] | None = None

    def fits(self, told: Told) -> bool:
        return self._may_see(told) and self._asked_for(told)

    def _may_see(self, told: Told) -> bool:
        """What is of no job (a lost worker, a paused queue), or of a job that is gone, concerns
        everybody: it is for those who may see everything."""
        if told.tenant is None:
            return self.tenant is None and self.queues is None
        return self.tenant in (None, told.tenant) and (
            self.queues is None or told.queue in self.queues
        )

    def _asked_for(self, told: Told) -> bool:
        return (
            self.job in (None, told.job)
            and (not self.kinds or told.kind in self.kinds)
            and (not self.in_queues or told.queue in self.in_queues)
            and (not self.tasks or told.task in self.tasks)
            and (not self.states or _became(told) in self.states)
        )


def _became(told: Told) -> str | None:
    """What an event itself says: how its job stands now is something else by the time that it is
    read again, and who resumes must find the same events."""
    said = lenient_json(told.data) if told.kind in STATED else None
    return str(said.get("state")) if isinstance(said, dict) else None
