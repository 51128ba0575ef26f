"""Filters of events: those that a subscriber requests and may see."""

from __future__ import annotations

from dataclasses import dataclass

from ..model.job import lenient_json
from .events import StoredEvent

STATE_KINDS = frozenset({"attempt", "cancel"})  # kinds with the job's new state
STARTED, SUCCEEDED = "started", "succeeded"
DERIVED_KINDS = frozenset({STARTED, SUCCEEDED})  # read from the jobs themselves: see `live_events`


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Empty fields match all. `tenant` and `queues` are the caller's access, not its request."""

    job: str | None = None
    flow: str | None = None
    kinds: frozenset[str] = frozenset()
    in_queues: frozenset[str] = frozenset()
    tasks: frozenset[str] = frozenset()
    states: frozenset[str] = frozenset()
    tenant: str | None = None
    queues: frozenset[str] | None = None

    @property
    def wants_stored(self) -> bool:
        """Whether any event of the table is wanted, beside what is read from jobs."""
        return not self.kinds or bool(self.kinds - DERIVED_KINDS)

    def matches(self, event: StoredEvent) -> bool:
        return self._may_see(event) and self._is_requested(event)

    def _may_see(self, event: StoredEvent) -> bool:
        """Events without a job (a lost worker, a paused queue), or of a deleted job, are for
        callers with access to everything."""
        if event.tenant is None:
            return self.tenant is None and self.queues is None
        return self.tenant in (None, event.tenant) and (
            self.queues is None or event.queue in self.queues
        )

    def _is_requested(self, event: StoredEvent) -> bool:
        return (
            self.job in (None, event.job)
            and self.flow in (None, event.flow)
            and (not self.kinds or event.kind in self.kinds)
            and (not self.in_queues or event.queue in self.in_queues)
            and (not self.tasks or event.task in self.tasks)
            and (not self.states or _resulting_state(event) in self.states)
        )


def _resulting_state(event: StoredEvent) -> str | None:
    """The state in the event itself: the job's current state changes, and a resumed stream must
    find the same events."""
    data = lenient_json(event.data) if event.kind in STATE_KINDS else None
    return str(data.get("state")) if isinstance(data, dict) else None
