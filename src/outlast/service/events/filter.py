"""Which events a subscriber wants, and which of them it may see."""

from __future__ import annotations

from dataclasses import dataclass

from ...model.job import lenient_json
from ...ops.events import StoredEvent

STATE_KINDS = frozenset({"attempt", "cancel"})  # what says what became of its job


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Empty means: whatever there is. `tenant` and `queues` are what the caller may see, and say
    nothing of what it asked for."""

    job: str | None = None
    kinds: frozenset[str] = frozenset()
    in_queues: frozenset[str] = frozenset()
    tasks: frozenset[str] = frozenset()
    states: frozenset[str] = frozenset()
    tenant: str | None = None
    queues: frozenset[str] | None = None

    def matches(self, event: StoredEvent) -> bool:
        return self._may_see(event) and self._is_requested(event)

    def _may_see(self, event: StoredEvent) -> bool:
        """What is of no job (a lost worker, a paused queue), or of a job that is gone, concerns
        everybody: it is for those who may see everything."""
        if event.tenant is None:
            return self.tenant is None and self.queues is None
        return self.tenant in (None, event.tenant) and (
            self.queues is None or event.queue in self.queues
        )

    def _is_requested(self, event: StoredEvent) -> bool:
        return (
            self.job in (None, event.job)
            and (not self.kinds or event.kind in self.kinds)
            and (not self.in_queues or event.queue in self.in_queues)
            and (not self.tasks or event.task in self.tasks)
            and (not self.states or _resulting_state(event) in self.states)
        )


def _resulting_state(event: StoredEvent) -> str | None:
    """What an event itself says: how its job stands now is something else by the time that it is
    read again, and who resumes must find the same events."""
    data = lenient_json(event.data) if event.kind in STATE_KINDS else None
    return str(data.get("state")) if isinstance(data, dict) else None
