"""The jobs in a worker's hands, from claim until the database has taken their outcome back."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from ..model.job import Claim
from ..model.outcome import Transition
from .execute import Execution


@dataclass(slots=True, eq=False)
class Held:
    """One job in hand. `safe_until` is when, by our own clock, its lease may run out."""

    claim: Claim
    safe_until: float
    execution: Execution | None = None  # None: its task is unknown here
    task: asyncio.Task[None] | None = None
    transition: Transition | None = None  # set once it has ended
    abandoned: bool = False  # nobody waits for its handler any more
    timers: list[asyncio.TimerHandle] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        return self.transition is not None

    def drop_timers(self) -> None:
        for timer in self.timers:
            timer.cancel()
        self.timers.clear()


class Hands:
    """All of them. Read by the keeper's thread, changed by the worker's loop alone."""

    def __init__(self) -> None:
        self._held: dict[str, Held] = {}

    def take(self, held: Held) -> None:
        self._held[held.claim.id] = held

    def drop(self, held: Held) -> None:
        held.drop_timers()
        if self._held.get(held.claim.id) is held:
            del self._held[held.claim.id]

    def put_down(self, claim: Claim) -> None:
        """The database has taken back the outcome of this claim."""
        if held := self.get(claim.id, claim.fence):
            self.drop(held)

    def holds(self, held: Held) -> bool:
        return self._held.get(held.claim.id) is held

    def get(self, id: str, fence: int | None = None) -> Held | None:
        held = self._held.get(id)
        return held if held and fence in (None, held.claim.fence) else None

    def fences(self) -> dict[str, int]:
        """A snapshot, safe to take from another thread."""
        return {held.claim.id: held.claim.fence for held in tuple(self._held.values())}

    def running(self) -> list[Held]:
        return [held for held in tuple(self._held.values()) if not held.ended]

    def overdue(self) -> list[Held]:
        """Those whose lease may have run out unrenewed."""
        now = time.monotonic()
        return [held for held in tuple(self._held.values()) if held.safe_until < now]

    def __len__(self) -> int:
        return len(self._held)
