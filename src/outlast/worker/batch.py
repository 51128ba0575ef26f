"""One attempt of many items: its calls, and the outcome of each item.

items ── decode ── call ──┬── returned ─────────── each succeeded
           │              ├── BatchFailed ──────── those that it names failed, the others succeeded
           │              ├── RetryLater ───────── all postponed
           │              ├── DependencyDown ───── all released, unspent; likewise a connection
           │              │                        error, if both halves fail as well
           │              └── raised ───────────── called again in halves; a single item failed
           └── unreadable ──────────────────────── undecodable, not in the call

A cancelled item does not stop the call; the call is cancelled once all its items are.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from contextlib import nullcontext
from functools import partial
from typing import Any, cast

from ..model.arguments import ItemArguments
from ..model.batch import (
    MAX_CONNECTION_FAILURES,
    MAX_FAILED_CALLS,
    Bisection,
    batch_failure_problem,
    last_try,
    results_of,
)
from ..model.breaker import Outage, outage_of
from ..model.errors import BatchFailed, InvalidInput, RetryLater
from ..model.lifecycle import Outcome
from ..model.outcome import AttemptEnd, Error
from ..model.retry import MAX_DELAY_S
from ..model.safe_text import MESSAGE_LIMIT, error_record, storable_text, type_name
from ..model.task import TaskDefinition
from ..tracing import running, trace_of, tracer
from .batch_context import BatchContext
from .blob_io import store_retry_delay
from .context import Context
from .executor import Execution, undecodable_end
from .failure_attribution import OutageJudge
from .in_flight import InFlight
from .threads import in_thread


class BatchItem(Execution):
    """One job of a batch: its context, and whether it was asked to stop."""

    def __init__(
        self,
        definition: TaskDefinition,
        job: InFlight,
        context: Context,
        on_stop: Callable[[BatchItem], None],
    ) -> None:
        super().__init__(definition, job.claim, context)
        self.job = job
        self.attempt: BatchAttempt | None = None  # None: the batch is still being gathered
        self.is_over = False  # it ended before the call
        self._on_stop = on_stop

    def interrupt(self, body: asyncio.Task[AttemptEnd] | None) -> None:
        super().interrupt(body)
        self._on_stop(self)

    def failed(self, error: Error) -> AttemptEnd:
        return (
            AttemptEnd(Outcome.FAILED, error=error) if self.stopped is None else self.interrupted()
        )

    def postponed(self, error: RetryLater) -> AttemptEnd:
        """Postponed with the whole batch; the first item has the record and the log line."""
        if self.stopped is not None or self.context.completed or error.spent:
            return self.raised(error)
        delay, described = min(error.seconds, MAX_DELAY_S), self.described(error)
        return AttemptEnd(Outcome.RELEASED, delay=delay, error=described, quiet=True)

    def held_back(self, error: Error) -> AttemptEnd:
        """Released by an outage. Without a breaker for the task, it has a delay."""
        wait = store_retry_delay(self.claim.attempt)
        ended = AttemptEnd(Outcome.POSTPONED, delay=wait, error=error, outage=Outage.CERTAIN)
        return ended if self.stopped is None else self.interrupted()


class BatchAttempt:
    def __init__(
        self,
        definition: TaskDefinition,
        items: Sequence[BatchItem],
        end: Callable[[BatchItem, AttemptEnd], None],
        threads: Executor,
        breakers: OutageJudge,
    ) -> None:
        self._breakers = breakers
        self._definition = definition
        self._arguments = cast(ItemArguments, definition.arguments)
        self._end = end
        self._threads = threads
        self._awaited = set(items)  # items that are neither ended nor stopped
        self.items = items
        self.cancelled = threading.Event()
        self.task: asyncio.Task[None] | None = None
        for item in items:
            item.attempt = self

    async def run(self) -> None:
        search = Bisection(self.items)
        while (part := search.next()) is not None:
            await self._attempt(search, part)

    def item_stopped(self, item: BatchItem) -> None:
        """An item was asked to stop."""
        self._awaited.discard(item)
        if not self._awaited and not self.cancelled.is_set():
            self.cancelled.set()
            if self._definition.is_async and self.task is not None:
                self.task.cancel()

    def end_item(self, item: BatchItem, ended: AttemptEnd) -> None:
        self._awaited.discard(item)
        item.context._end()
        self._end(item, ended)

    # One call

    async def _attempt(self, search: Bisection[BatchItem], part: list[BatchItem]) -> None:
        for item in [item for item in part if item.claim.args[:1] == "["]:
            await self._fetch(item)
        values = {item: value for item in part for value in self._decoded(item)}
        called = list(values)
        if not called:
            return
        context = BatchContext([item.context for item in called], self.cancelled)
        arguments = self._arguments.call(list(values.values()), context)
        call = partial(self._definition.handler, **arguments)
        recorder, claims = tracer(), [item.claim for item in called]
        try:
            with nullcontext() if recorder is None else running(recorder, claims) as span:
                for item in called:
                    item.context.run_trace = None if span is None else trace_of(span)
                result = await self._call(call)
        except BaseException as error:
            await self._raised(search, called, error)
        else:
            search.succeeded()
            await self._returned(called, result)

    def _call(self, call: Callable[[], Any]) -> Awaitable[object]:
        return call() if self._definition.is_async else in_thread(self._threads, call)

    async def _fetch(self, item: BatchItem) -> None:
        """An item whose arguments cannot be fetched takes no part in the call."""
        try:
            if item.stopped is None:
                await item.afetch(self._threads)
        except BaseException as error:
            self.end_item(item, item.unreadable(error))
            item.is_over = True

    def _decoded(self, item: BatchItem) -> list[object]:
        """An item's argument, decoded again for each call; empty if it takes no part."""
        if item.is_over:
            return []
        if item.stopped is not None:
            self.end_item(item, item.interrupted())
            return []
        try:
            value = self._arguments.item(item.claim.args)
        except BaseException as error:  # a user's validator may raise anything
            self.end_item(item, undecodable_end(error))
            return []
        item.context.jobs.clear()  # what it enqueued in a call that failed
        return [value]

    async def _returned(self, items: list[BatchItem], result: object) -> None:
        results = results_of(result, len(items))
        if results is None:
            # The work is done, but results cannot be matched to items. As with a result that cannot
            # be stored, another run would not help.
            mismatch = error_record(
                InvalidInput(_mismatch_message(self._definition.name, result, len(items)))
            )
            for item in items:
                self.end_item(item, AttemptEnd(Outcome.PERMANENT, error=mismatch))
            return
        for item, value in zip(items, results, strict=True):
            ended = item.returned(value)
            if item.context.blob_slots is not None:
                ended = await item.astore_large(ended, self._threads)
            self.end_item(item, ended)

    async def _raised(
        self, search: Bisection[BatchItem], items: list[BatchItem], error: BaseException
    ) -> None:
        if isinstance(error, BatchFailed):
            search.succeeded()
            await self._fail_named(items, error)
        elif isinstance(error, RetryLater):
            search.succeeded()
            first, *others = items
            self.end_item(first, first.raised(error))
            for item in others:
                self.end_item(item, item.postponed(error))
        else:
            self._fail_unnamed(search, items, error)

    async def _fail_named(self, items: list[BatchItem], failed: BatchFailed) -> None:
        if wrong := batch_failure_problem(failed, len(items)):
            invalid = error_record(InvalidInput(wrong))
            for item in items:
                self.end_item(item, item.failed(invalid))
            return
        results = results_of(failed.results, len(items)) or []
        for index, item in enumerate(items):
            ended = _end_of_item(item, failed.errors.get(index), results[index])
            if item.context.blob_slots is not None:
                ended = await item.astore_large(ended, self._threads)
            self.end_item(item, ended)

    def _fail_unnamed(
        self, search: Bisection[BatchItem], items: list[BatchItem], error: BaseException
    ) -> None:
        search.failed(items)
        if self._is_outage(search, items[0], error):
            described = self._described(items, error)
            for item in (*items, *search.drain()):
                self.end_item(item, item.held_back(described))
            return
        if len(items) == 1:
            self.end_item(items[0], items[0].raised(error))
        if abandoned := search.abandon_hopeless(lambda item: last_try(item.claim)):
            described = self._described(items, error)
            breaker = self._definition.breaker
            for item in abandoned:
                self.end_item(item, item.failed(described))
                if breaker is not None:
                    self._breakers.trip(item.claim, breaker, described)

    def _is_outage(
        self, search: Bisection[BatchItem], item: BatchItem, error: BaseException
    ) -> bool:
        """Whether the dependency is at fault, not an item. A connection error counts if both halves
        fail, any other error if the search finds no bad item."""
        breaker = self._definition.breaker
        outage = outage_of(error, breaker)
        if outage is Outage.CERTAIN:
            return True
        if breaker is None:
            return False
        if self._breakers.is_open(item.claim, "" if outage else type_name(error)):
            return True
        calls = MAX_CONNECTION_FAILURES if outage else MAX_FAILED_CALLS + 1
        return search.failed_calls >= calls and self._breakers.refunds(item.claim)

    def _described(self, items: Sequence[BatchItem], error: BaseException) -> Error:
        described = error_record(error)
        for item in items:  # the error may quote any of them
            described = item.masked(described)
        return described


def _end_of_item(
    item: BatchItem, failure: BaseException | str | None, result: object
) -> AttemptEnd:
    if failure is None:
        return item.returned(result)
    if isinstance(failure, BaseException):
        return item.raised(failure)
    message = storable_text(failure, MESSAGE_LIMIT)
    error = {"type": "BatchFailed", "message": message, "traceback": ""}
    return item.failed(item.masked(error))


def _mismatch_message(task: str, result: object, number: int) -> str:
    what = f"a list of {len(result)}" if isinstance(result, list) else type_name(result)
    return f"{task} returned {what}: a batch of {number} returns None or a list of {number} results"
