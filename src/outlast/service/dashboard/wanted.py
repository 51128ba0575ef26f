"""Which jobs a page is about: a filter that is its address, so that it can be kept and sent."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, Literal
from uuid import UUID

from ...model.lifecycle import State
from ...ops.browse import count_some
from ...ops.reach import Reach
from ...ops.search import Sought
from ..api.asked import Incoming, Reason
from ..calls import Call
from ..census import by_state

COUNT_FOR = 0.05  # seconds; then "at least" so many
MOST_NAMES = 200  # that a field suggests

# Which states the jobs are in that an action can take.
ABLE = {
    "cancel": (State.WAITING, State.SCHEDULED, State.READY, State.RUNNING),
    "redrive": (State.DEAD, State.CANCELLED),
    "purge": (State.SUCCEEDED, State.DEAD, State.CANCELLED),
}

Said = Reason  # printable, and not without end


class Wanted(Incoming):
    """A filter; what is empty is not asked for."""

    state: State | Literal[""] = ""
    queue: Said = ""
    task: Said = ""
    tenant: Said = ""
    text: Said = ""
    error: Said = ""

    @property
    def sought(self) -> Sought:
        state = str(self.state) or None
        words = (self.queue, self.task, self.text.strip(), self.error)
        return Sought(state, *(word or None for word in words))

    @property
    def query(self) -> dict[str, str]:
        """As an address has it."""
        return {
            name: str(getattr(self, name)) for name in Wanted.model_fields if getattr(self, name)
        }

    @property
    def is_counted(self) -> bool:
        """Whether the census, which is at hand, tells how many there are."""
        return not (self.text.strip() or self.error)


class WantedPage(Wanted):
    cursor: UUID | None = None


@dataclass(frozen=True, slots=True)
class Number:
    """How many jobs there are, or were so long ago; or that there are so many at the least."""

    number: int
    exact: bool
    age: float | None = None  # seconds, if that is long


@dataclass(frozen=True, slots=True)
class ByState:
    counts: dict[str, int]
    age: float | None  # seconds, if that is long


def reach_of(call: Call, wanted: Wanted) -> Reach:
    """Whoever sees all tenants may ask for one of them; nobody sees more by asking."""
    if wanted.tenant and call.who.tenant is None:
        return Reach(wanted.tenant, call.who.queues)
    return call.reach


def states_for(action: str, wanted: Wanted) -> list[State]:
    """The states of which an action can take jobs, as far as they are wanted; in the order in which
    a job comes by them, so that one that goes on meanwhile is met in the next."""
    if action == "purge" and not wanted.state:
        return []  # what cannot be brought back is named
    return [state for state in ABLE[action] if wanted.state in ("", state)]


async def states_counted(call: Call, wanted: Wanted) -> ByState | None:
    """How many there are in each state of what is wanted otherwise, if that is known."""
    if not wanted.is_counted:
        return None
    counted = await call.service.census.counted()
    kinds = counted.of(reach_of(call, wanted), replace(wanted.sought, state=None))
    return ByState(by_state(kinds), counted.age if counted.is_old else None)


async def number_of(call: Call, wanted: Wanted, states: list[State]) -> Number:
    """How many jobs an action would be about."""
    if (known := await states_counted(call, wanted)) is not None:
        return Number(sum(known.counts[state] for state in states), True, known.age)
    number, until = 0, time.monotonic() + COUNT_FOR
    for state in states:
        sought, cursor = replace(wanted.sought, state=str(state)), None
        while True:
            some, cursor = await call.ol.store.arun(
                count_some, sought, reach_of(call, wanted), cursor
            )
            number += some
            if time.monotonic() > until:
                return Number(number, cursor is None and state is states[-1])
            if cursor is None:
                break
    return Number(number, True)


async def names_known(call: Call) -> dict[str, list[str]]:
    """Queues, tasks and tenants that a field can suggest."""
    counted = await call.service.census.counted()
    kinds: list[Any] = list(counted.of(call.reach))
    return {
        name: sorted({getattr(kind, name) for kind in kinds})[:MOST_NAMES]
        for name in ("queue", "task", "tenant")
    }
