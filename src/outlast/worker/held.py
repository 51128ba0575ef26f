"""The jobs in a worker's hands, from claim until the database has taken their outcome back."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..model.job import Claim, Hold
from ..model.outcome import Transition

if TYPE_CHECKING:
    from .execute import Execution

SAFETY = 0.9  # the share of a lease after which an unrenewed job is let go


@dataclass(slots=True, eq=False)
class Held:
    """One job in hand. By our own clock, `safe_until` is when its lease may run out, and
    `overdue_at` when even a handler that ignores its timeout should have been given up."""

    claim: Claim
    safe_until: float
    execution: Execution | None = None  # None: it has not begun, or is not to be carried out
    task: asyncio.Task[Any] | None = None  # in which its handler runs
    transition: Transition | None = None  # set once it has ended
    abandoned: bool = False  # nobody waits for its handler any more
    shares: bool = False  # an item of a batch: all of them take one slot
    overdue_at: float = math.inf
    began_at: float = 0.0  # when its handler was called
    timers: tuple[asyncio.TimerHandle, ...] = ()

    @property
    def ended(self) -> bool:
        return self.transition is not None

    @property
    def completed(self) -> bool:
        """Its handler, which may still run, has completed the job by itself."""
        return self.execution is not None and self.execution.context.completed

    def drop_timers(self) -> None:
        for timer in self.timers:
            timer.cancel()
        self.timers = ()


class Hands:
    """All of them. Taken and put down by the worker's loop alone; the keeper's thread reads them,
    and says how long they are safe, because a handler may be blocking the loop."""

    def __init__(self) -> None:
        self._held: dict[str, Held] = {}
        self._sharing = 0
        self._given_up: set[Hold] = set()

    def take(self, held: Held) -> bool:
        """False: the keeper has put it back already, because it was so long on its way to us."""
        self._held[held.claim.id] = held
        if held.claim.hold not in self._given_up:
            return True
        self.drop(held)
        return False

    def give_up(self, claim: Claim) -> bool:
        """From the keeper's thread: this claim never came, and must not any more. False: it has.

        Each side first says what it does and then looks at what the other has said, so that never
        both of them go ahead.
        """
        if len(self._given_up) > 10_000:
            self._given_up.clear()
        self._given_up.add(claim.hold)
        if not self._has(claim):
            return True
        self._given_up.discard(claim.hold)
        return False

    def _has(self, claim: Claim) -> bool:
        return self.get(claim.id, claim.fence) is not None

    def drop(self, held: Held) -> None:
        held.drop_timers()
        if self._held.get(held.claim.id) is held:
            del self._held[held.claim.id]
            self._sharing -= held.shares

    def share(self, held: Held) -> None:
        """It takes no slot of its own."""
        held.shares = True
        self._sharing += 1

    def recount(self) -> None:
        """How many share a slot: for when we failed between a job and its count."""
        self._sharing = sum(held.shares for held in self._all())

    @property
    def slots(self) -> int:
        """How many slots are taken by those that share none."""
        return len(self._held) - self._sharing

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
        return {held.claim.id: held.claim.fence for held in self._all()}

    def renewed(self, kept: Iterable[str], fences: Mapping[str, int], until: float) -> None:
        """From the keeper's thread: these leases were renewed."""
        for id in kept:
            if held := self.get(id, fences[id]):
                held.safe_until = until

    def locked(self, fences: Mapping[str, int], until: float) -> None:
        """From the keeper's thread: nobody can take these before that moment, because somebody's
        lock keeps everyone from writing."""
        now = time.monotonic()
        for id, fence in fences.items():
            held = self.get(id, fence)
            if held and held.safe_until > now:
                held.safe_until = max(held.safe_until, until)

    def running(self) -> list[Held]:
        return [held for held in self._all() if not held.ended]

    def ended(self) -> list[Held]:
        return [held for held in self._all() if held.ended]

    def unsafe(self) -> list[Held]:
        """Those whose lease may run out unrenewed."""
        now = time.monotonic()
        return [held for held in self.running() if held.safe_until <= now]

    def overdue(self) -> list[Held]:
        """Those that should have ended, had anyone been able to stop them."""
        now = time.monotonic()
        return [held for held in self.running() if held.overdue_at <= now]

    def safe_until(self) -> float:
        """When the first of them becomes unsafe."""
        return min((held.safe_until for held in self.running()), default=math.inf)

    def oldest(self) -> Held | None:
        """The one that has been in hand for the longest."""
        return next(iter(self._held.values()), None)

    def has_last_life(self) -> bool:
        return any(held.claim.last_life for held in tuple(self._held.values()))

    def __len__(self) -> int:
        return len(self._held)

    def _all(self) -> tuple[Held, ...]:
        return tuple(self._held.values())


def facts(claim: Claim) -> dict[str, Any]:
    """What every log line about a job carries."""
    return {
        "job": claim.id,
        "attempt": claim.attempt,
        "fence": claim.fence,
        "tenant": claim.tenant,
        "trace": claim.trace,
    }
