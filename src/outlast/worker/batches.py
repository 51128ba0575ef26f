"""Items of batch tasks in hand: gathered per task, then carried out together.

claim ─▶ join ─▶ gathering ── full, or its wait is over ─▶ attempt ─▶ each item ended
                    │ the worker asks for more of the task while there may be more
                    └▶ told to stop: leaves at once, unspent at shutdown

A gathering takes one slot of the worker's concurrency from its first item on, as the attempt does
that it becomes: so a batch may be far larger than the concurrency.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from ..model.batch import Batch, goes_alone
from ..model.errors import OutlastError
from ..model.job import Claim
from ..model.lifecycle import Outcome
from ..model.outcome import Ended
from ..model.task import Definition
from .batch import BatchAttempt, Item
from .breaker import OutageJudge
from .context import Context
from .held import Held

if TYPE_CHECKING:
    from .worker import Worker

LATE = 1.0  # seconds after which a timer that should have gone off is not waited for


@dataclass(slots=True, eq=False)
class Gathering:
    """Items that wait for others of their task."""

    definition: Definition
    batch: Batch
    queue: str = ""  # where the last of them came from
    items: dict[Item, None] = field(default_factory=dict)
    more: bool = False  # there may be more in that queue: it is worth asking
    heard: bool = False  # there is news of that queue
    due_at: float = math.inf
    due: bool = False  # said by the timer, which may be a hair early by the clock
    timer: asyncio.TimerHandle | None = None

    @property
    def room(self) -> int:
        return self.batch.size - len(self.items)


class Batches:
    def __init__(
        self, worker: Worker, end: Callable[[Held, Ended], None], breakers: OutageJudge
    ) -> None:
        self._worker = worker
        self._breakers = breakers
        self._end_held = end
        self._gatherings: dict[str, Gathering] = {}
        self._attempts: set[BatchAttempt] = set()

    @property
    def slots(self) -> int:
        return len(self._gatherings) + len(self._attempts)

    # Gather

    def join(self, held: Held, definition: Definition, context: Context) -> None:
        """An item was claimed."""
        item = Item(definition, held, context, self._told)
        held.execution = item
        self._worker.hands.share(held)
        if goes_alone(held.claim):
            self._begin(definition, [item])
            return
        gathering = self._gathering(definition)
        gathering.items[item] = None
        gathering.queue = held.claim.queue
        if gathering.room <= 0:
            self._close(gathering)
        else:
            self._wait(gathering, held.claim.timeout)

    def gathers(self, claim: Claim) -> bool:
        """Whether there is a batch that it would join."""
        return claim.task in self._gatherings and not goes_alone(claim)

    def hungry(self, full: bool) -> Gathering | None:
        """One that should be asked for. News of its queue reach it by the worker's next claim,
        unless the worker is full."""
        for gathering in self._gatherings.values():
            if gathering.more or (full and gathering.heard):
                gathering.more, gathering.heard = True, False
                return gathering
        return None

    def claimed(self, queue: str, all_there_was: bool) -> None:
        """The worker's own claim is through."""
        for gathering in tuple(self._gatherings.values()):
            if gathering.queue == queue:
                gathering.more = not all_there_was
                self._close_if_due(gathering)

    def filled(self, gathering: Gathering) -> None:
        """It was asked for, and still has room if it is still open."""
        gathering.more = False
        self._close_if_due(gathering)

    def hear(self, queue: str) -> None:
        for gathering in self._gatherings.values():
            gathering.heard = gathering.heard or queue in ("", gathering.queue)

    def waiting(self) -> list[Held]:
        return [item.held for each in self._gatherings.values() for item in each.items]

    def _gathering(self, definition: Definition) -> Gathering:
        assert definition.batch is not None
        found = self._gatherings.get(definition.name)
        if found is None:
            found = self._gatherings[definition.name] = Gathering(definition, definition.batch)
        return found

    def _wait(self, gathering: Gathering, timeout: float | None) -> None:
        """Its time is measured from the first item on. An item's own time runs as well: half of it
        is kept for the call."""
        wait = gathering.batch.wait if timeout is None else min(gathering.batch.wait, timeout / 2)
        due_at = time.monotonic() + wait
        if due_at >= gathering.due_at:
            return
        gathering.due_at = due_at
        if gathering.timer is not None:
            gathering.timer.cancel()
        later = asyncio.get_running_loop().call_later
        gathering.timer = later(wait, self._time_is_up, gathering)

    def _time_is_up(self, gathering: Gathering) -> None:
        gathering.due = True
        self._close_if_due(gathering)

    def _close_if_due(self, gathering: Gathering) -> None:
        """One that is being asked for is closed with the answer."""
        if gathering.due and not gathering.more and self._is_open(gathering):
            self._close(gathering)

    def _is_open(self, gathering: Gathering) -> bool:
        return self._gatherings.get(gathering.definition.name) is gathering

    def _close(self, gathering: Gathering) -> None:
        del self._gatherings[gathering.definition.name]
        if gathering.timer is not None:
            gathering.timer.cancel()
        if gathering.items:
            self._begin(gathering.definition, list(gathering.items))

    def in_care(self) -> set[Held]:
        """Those that wait for others, and those that are being called."""
        called = [item.held for attempt in self._attempts for item in attempt.items]
        return {*self.waiting(), *called}

    def tidy(self) -> None:
        """Whatever we failed at, no batch waits for ever, and none that is over takes a slot."""
        late = time.monotonic() - LATE
        for gathering in tuple(self._gatherings.values()):
            if (gathering.timer is None or gathering.due_at < late) and not gathering.more:
                self._close(gathering)
        self._attempts = {one for one in self._attempts if one.task and not one.task.done()}

    # Carry out

    def _begin(self, definition: Definition, items: list[Item]) -> None:
        attempt = BatchAttempt(definition, items, self._end, self._worker.threads, self._breakers)
        self._attempts.add(attempt)
        now = time.monotonic()
        for item in items:
            item.held.began_at = now
        attempt.task = asyncio.create_task(attempt.run())
        attempt.task.add_done_callback(partial(self._done, attempt))

    def _done(self, attempt: BatchAttempt, task: asyncio.Task[None]) -> None:
        self._attempts.discard(attempt)
        try:
            task.result()
            error: BaseException = OutlastError("the batch ended without a word about this item")
        except BaseException as raised:  # told to stop before it began
            error = raised
        for item in attempt.items:
            if self._is_ours(item):  # nobody stays in hand with nothing to wait for
                self._end(item, item.raised(error))
        self._worker.news()  # there is room again

    def _end(self, item: Item, ended: Ended) -> None:
        """What was lost, abandoned or told before is not told again."""
        if self._is_ours(item):
            self._end_held(item.held, ended)

    def _is_ours(self, item: Item) -> bool:
        return self._worker.hands.holds(item.held) and not item.held.ended

    def _told(self, item: Item) -> None:
        """An item was told to stop: one that has not begun just leaves."""
        if item.attempt is not None:
            item.attempt.told(item)
            return
        self._leave(item)
        self._end(item, item.interrupted())

    def leave(self, held: Held) -> None:
        """It has not begun, and does not wait for the others any more."""
        if isinstance(held.execution, Item):
            self._leave(held.execution)

    def _leave(self, item: Item) -> None:
        gathering = self._gatherings.get(item.claim.task)
        if gathering is not None and item in gathering.items:
            del gathering.items[item]
            if not gathering.items and not gathering.more:
                self._close(gathering)

    def release(self, interrupt: Callable[[Held, Outcome], None]) -> None:
        """What has not begun goes back at once, unspent."""
        for held in self.waiting():
            interrupt(held, Outcome.RELEASED)
