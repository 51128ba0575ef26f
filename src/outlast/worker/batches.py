"""Batches in flight: items are gathered per task, then run together.

claim ─▶ join ─▶ open batch ── full, or its wait is over ─▶ attempt ─▶ each item ended
                    │ the worker claims more of the task while there may be more
                    └▶ stopped: leaves at once, unspent at shutdown

An open batch takes one slot of the worker's concurrency from its first item on, and its attempt
keeps that slot: a batch may be far larger than the concurrency.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from ..model.batch import Batch, runs_alone
from ..model.claim import Claim
from ..model.errors import OutlastError
from ..model.lifecycle import Outcome
from ..model.outcome import AttemptEnd
from ..model.task import TaskDefinition
from .batch import BatchAttempt, BatchItem
from .context import Context
from .failure_attribution import OutageJudge
from .in_flight import InFlight, InFlightJobs
from .threads import Threads

TIMER_SLACK_S = 1.0  # seconds after which an overdue timer counts as lost


@dataclass(slots=True, eq=False)
class OpenBatch:
    """A batch that is being gathered: items that wait for others of their task."""

    definition: TaskDefinition
    batch: Batch
    queue: str = ""  # of the last item
    items: dict[BatchItem, None] = field(default_factory=dict)
    may_have_more: bool = False  # that queue may have more items: claim again
    notified: bool = False  # that queue was notified
    due_at: float = math.inf
    due: bool = False  # set by the timer, which may fire slightly early by the clock
    timer: asyncio.TimerHandle | None = None

    @property
    def capacity(self) -> int:
        return self.batch.size - len(self.items)


class Batches:
    def __init__(
        self,
        in_flight: InFlightJobs,
        threads: Threads,
        breakers: OutageJudge,
        end: Callable[[InFlight, AttemptEnd], None],
        slot_freed: Callable[[], None],
    ) -> None:
        self._in_flight = in_flight
        self._threads = threads
        self._breakers = breakers
        self._slot_freed = slot_freed
        self._end_job = end
        self._open: dict[str, OpenBatch] = {}
        self._attempts: set[BatchAttempt] = set()

    @property
    def slots(self) -> int:
        return len(self._open) + len(self._attempts)

    # Gather

    def join(self, job: InFlight, definition: TaskDefinition, context: Context) -> None:
        """Add a claimed item."""
        context.can_wait = False
        item = BatchItem(definition, job, context, self._item_stopped)
        job.execution = item
        if runs_alone(job.claim):
            self._begin(definition, [item])
            return
        batch = self._open_batch(definition)
        batch.items[item] = None
        batch.queue = job.claim.queue
        if batch.capacity <= 0:
            self._close(batch)
        else:
            self._wait(batch, job.claim.timeout)

    def would_join(self, claim: Claim) -> bool:
        """Whether there is an open batch for this claim."""
        return claim.task in self._open and not runs_alone(claim)

    def wants_more(self, full: bool) -> OpenBatch | None:
        """The open batch to claim more items for. A notification of its queue matters only while
        the worker is full: otherwise the worker's next claim brings the items."""
        for batch in self._open.values():
            if batch.may_have_more or (full and batch.notified):
                batch.may_have_more, batch.notified = True, False
                return batch
        return None

    def note_claim(self, queue: str, all_there_was: bool) -> None:
        """The worker's own claim from this queue has returned."""
        for batch in tuple(self._open.values()):
            if batch.queue == queue:
                batch.may_have_more = not all_there_was
                self._close_if_due(batch)

    def note_filled(self, batch: OpenBatch) -> None:
        """A claim for this batch has returned. If the batch is still open, it has room."""
        batch.may_have_more = False
        self._close_if_due(batch)

    def notify(self, queue: str) -> None:
        for batch in self._open.values():
            batch.notified = batch.notified or queue in ("", batch.queue)

    def waiting(self) -> list[InFlight]:
        return [item.job for each in self._open.values() for item in each.items]

    def _open_batch(self, definition: TaskDefinition) -> OpenBatch:
        assert definition.batch is not None
        found = self._open.get(definition.name)
        if found is None:
            found = self._open[definition.name] = OpenBatch(definition, definition.batch)
        return found

    def _wait(self, batch: OpenBatch, timeout: float | None) -> None:
        """Set the timer of a batch, which counts from its first item. The timeout of an item runs
        as well: half of it is kept for the call."""
        wait = batch.batch.wait if timeout is None else min(batch.batch.wait, timeout / 2)
        due_at = time.monotonic() + wait
        if due_at >= batch.due_at:
            return
        batch.due_at = due_at
        if batch.timer is not None:
            batch.timer.cancel()
        later = asyncio.get_running_loop().call_later
        batch.timer = later(wait, self._timer_fired, batch)

    def _timer_fired(self, batch: OpenBatch) -> None:
        batch.due = True
        self._close_if_due(batch)

    def _close_if_due(self, batch: OpenBatch) -> None:
        """Close a due batch; while a claim for it is under way, its result closes the batch."""
        if batch.due and not batch.may_have_more and self._is_open(batch):
            self._close(batch)

    def _is_open(self, batch: OpenBatch) -> bool:
        return self._open.get(batch.definition.name) is batch

    def _close(self, batch: OpenBatch) -> None:
        del self._open[batch.definition.name]
        if batch.timer is not None:
            batch.timer.cancel()
        if batch.items:
            self._begin(batch.definition, list(batch.items))

    def tracked(self) -> set[InFlight]:
        """Items that wait for others, and items in a call."""
        called = [item.job for attempt in self._attempts for item in attempt.items]
        return {*self.waiting(), *called}

    def tidy(self) -> None:
        """Repair after internal errors: no batch waits for ever, no ended one keeps a slot."""
        late = time.monotonic() - TIMER_SLACK_S
        for batch in tuple(self._open.values()):
            if (batch.timer is None or batch.due_at < late) and not batch.may_have_more:
                self._close(batch)
        self._attempts = {one for one in self._attempts if one.task and not one.task.done()}

    # Run

    def _begin(self, definition: TaskDefinition, items: list[BatchItem]) -> None:
        attempt = BatchAttempt(definition, items, self._end, self._threads, self._breakers)
        self._attempts.add(attempt)
        now = time.monotonic()
        for item in items:
            item.job.began_at = now
        attempt.task = asyncio.create_task(attempt.run())
        attempt.task.add_done_callback(partial(self._done, attempt))

    def _done(self, attempt: BatchAttempt, task: asyncio.Task[None]) -> None:
        self._attempts.discard(attempt)
        try:
            task.result()
            error: BaseException = OutlastError("the batch ended without an outcome of this item")
        except BaseException as raised:  # cancelled before it began
            error = raised
        for item in attempt.items:
            if self._is_ours(item):  # no item stays in flight without an attempt
                self._end(item, item.raised(error))
        self._slot_freed()

    def _end(self, item: BatchItem, ended: AttemptEnd) -> None:
        """End an item, unless it is lost, abandoned or already reported."""
        if self._is_ours(item):
            self._end_job(item.job, ended)

    def _is_ours(self, item: BatchItem) -> bool:
        return self._in_flight.holds(item.job) and not item.job.ended

    def _item_stopped(self, item: BatchItem) -> None:
        """An item was asked to stop: an item that has not started ends at once."""
        if item.attempt is not None:
            item.attempt.item_stopped(item)
            return
        self._remove(item)
        self._end(item, item.interrupted())

    def remove(self, job: InFlight) -> None:
        """Remove an item that has not started."""
        if isinstance(job.execution, BatchItem):
            self._remove(job.execution)

    def _remove(self, item: BatchItem) -> None:
        batch = self._open.get(item.claim.task)
        if batch is not None and item in batch.items:
            del batch.items[item]
            if not batch.items and not batch.may_have_more:
                self._close(batch)

    def release(self, interrupt: Callable[[InFlight, Outcome], None]) -> None:
        """Release items that have not started at once, unspent."""
        for job in self.waiting():
            interrupt(job, Outcome.RELEASED)
