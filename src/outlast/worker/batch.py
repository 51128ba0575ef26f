"""One attempt of many items: the calls that it takes, and how each of them ended.

items ── decode ── call ──┬── returned ─────────── each succeeded
           │              ├── BatchFailed ──────── those that it names failed, the others succeeded
           │              ├── RetryLater ───────── all postponed
           │              ├── DependencyDown ───── all back, unspent; so for a connection error, if
           │              │                        both halves fail as well
           │              └── raised ───────────── called again in halves; one alone has failed
           └── unreadable ──────────────────────── undecodable, and no part of the call

An item that is told to stop keeps the others' call running; a call whose every item was told to
stop is told as well.
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
from ..model.batch import PATIENCE, UNREACHED, Search, last_try, misnamed, results_of
from ..model.breaker import Outage, outage_of
from ..model.errors import BatchFailed, InvalidInput, RetryLater
from ..model.lifecycle import Outcome
from ..model.outcome import Ended, Error
from ..model.task import Definition
from ..model.text import MESSAGE_LIMIT, clean, describe, type_name
from ..tracing import running, trace_of, tracer
from .batch_context import BatchContext
from .breaker import OutageJudge
from .context import Context
from .execute import Execution, undecodable
from .held import Held
from .referring import wait_for_store
from .threads import in_thread


class Item(Execution):
    """One job's part in it: what it may say, and whether it was told to stop."""

    def __init__(
        self, definition: Definition, held: Held, context: Context, told: Callable[[Item], None]
    ) -> None:
        super().__init__(definition, held.claim, context)
        self.held = held
        self.attempt: BatchAttempt | None = None  # None: it is still being gathered
        self.over = False  # it ended before it was called
        self._told = told

    def interrupt(self, body: asyncio.Task[Ended] | None) -> None:
        super().interrupt(body)
        self._told(self)

    def failed(self, error: Error) -> Ended:
        return Ended(Outcome.FAILED, error=error) if self.stopped is None else self.interrupted()

    def held_back(self, error: Error) -> Ended:
        """By an outage. Where no breaker holds the task back, it comes back by itself."""
        wait = wait_for_store(self.claim.attempt)
        ended = Ended(Outcome.POSTPONED, delay=wait, error=error, outage=Outage.CERTAIN)
        return ended if self.stopped is None else self.interrupted()


class BatchAttempt:
    def __init__(
        self,
        definition: Definition,
        items: Sequence[Item],
        end: Callable[[Item, Ended], None],
        threads: Executor,
        breakers: OutageJudge,
    ) -> None:
        self._breakers = breakers
        self._definition = definition
        self._arguments = cast(ItemArguments, definition.arguments)
        self._end = end
        self._threads = threads
        self._awaited = set(items)  # those for which somebody waits
        self.items = items
        self.cancelled = threading.Event()
        self.task: asyncio.Task[None] | None = None
        for item in items:
            item.attempt = self

    async def run(self) -> None:
        search = Search(self.items)
        while (part := search.next()) is not None:
            await self._attempt(search, part)

    def told(self, item: Item) -> None:
        """One of them was told to stop."""
        self._awaited.discard(item)
        if not self._awaited and not self.cancelled.is_set():
            self.cancelled.set()
            if self._definition.is_async and self.task is not None:
                self.task.cancel()

    def end(self, item: Item, ended: Ended) -> None:
        self._awaited.discard(item)
        self._end(item, ended)

    # One call

    async def _attempt(self, search: Search[Item], part: list[Item]) -> None:
        for item in [item for item in part if item.claim.args[:1] == "["]:
            await self._fetch(item)
        values = {item: value for item in part for value in self._decoded(item)}
        called = list(values)
        if not called:
            return
        context = BatchContext([item.context for item in called], self.cancelled)
        arguments = self._arguments.call(list(values.values()), context)
        call = partial(self._definition.function, **arguments)
        recorder, claims = tracer(), [item.claim for item in called]
        try:
            with nullcontext() if recorder is None else running(recorder, claims) as span:
                for item in called:
                    item.context.run_trace = None if span is None else trace_of(span)
                result = await self._call(call)
        except BaseException as error:
            await self._raised(search, called, error)
        else:
            search.answered()
            await self._returned(called, result)

    def _call(self, call: Callable[[], Any]) -> Awaitable[Any]:
        return call() if self._definition.is_async else in_thread(self._threads, call)

    async def _fetch(self, item: Item) -> None:
        """Whoever's arguments cannot be had has no part in the call."""
        try:
            if item.stopped is None:
                await item.afetch(self._threads)
        except BaseException as error:
            self.end(item, item.unreadable(error))
            item.over = True

    def _decoded(self, item: Item) -> list[Any]:
        """What it brings to the call, anew for each one; nothing if it has no part in it."""
        if item.over:
            return []
        if item.stopped is not None:
            self.end(item, item.interrupted())
            return []
        try:
            value = self._arguments.item(item.claim.args)
        except BaseException as error:  # a user's validator may raise anything
            self.end(item, undecodable(error))
            return []
        item.context.jobs.clear()  # what it enqueued in a call that failed
        return [value]

    async def _returned(self, items: list[Item], result: Any) -> None:
        results = results_of(result, len(items))
        if results is None:
            # The work is done, but nobody can tell which result is whose: as with one that cannot
            # be stored, running it again would not help.
            told = describe(InvalidInput(_misfit(self._definition.name, result, len(items))))
            for item in items:
                self.end(item, Ended(Outcome.PERMANENT, error=told))
            return
        for item, value in zip(items, results, strict=True):
            ended = item.returned(value)
            if item.context.outlet is not None:
                ended = await item.aput_away(ended, self._threads)
            self.end(item, ended)

    async def _raised(self, search: Search[Item], items: list[Item], error: BaseException) -> None:
        if isinstance(error, BatchFailed):
            search.answered()
            await self._named(items, error)
        elif isinstance(error, RetryLater):
            search.answered()
            for item in items:
                self.end(item, item.raised(error))
        else:
            self._unnamed(search, items, error)

    async def _named(self, items: list[Item], failed: BatchFailed) -> None:
        if wrong := misnamed(failed, len(items)):
            told = describe(InvalidInput(wrong))
            for item in items:
                self.end(item, item.failed(told))
            return
        results = results_of(failed.results, len(items)) or []
        for index, item in enumerate(items):
            ended = _told(item, failed.errors.get(index), results[index])
            if item.context.outlet is not None:
                ended = await item.aput_away(ended, self._threads)
            self.end(item, ended)

    def _unnamed(self, search: Search[Item], items: list[Item], error: BaseException) -> None:
        search.failed(items)
        if self._is_outage(search, items[0], error):
            told = self._described(items, error)
            for item in (*items, *search.give_up_all()):
                self.end(item, item.held_back(told))
            return
        if len(items) == 1:
            self.end(items[0], items[0].raised(error))
        if given_up := search.give_up(lambda item: last_try(item.claim)):
            told = self._described(items, error)
            breaker = self._definition.breaker
            for item in given_up:
                self.end(item, item.failed(told))
                if breaker is not None:
                    self._breakers.trip(item.claim, breaker, told)

    def _is_outage(self, search: Search[Item], item: Item, error: BaseException) -> bool:
        """Whether it is no item's fault. A connection error that halves do not get around is the
        dependency's; any other is, if the search for a bad item finds none."""
        breaker = self._definition.breaker
        outage = outage_of(error, breaker)
        if outage is Outage.CERTAIN:
            return True
        if breaker is None:
            return False
        if self._breakers.is_open(item.claim, "" if outage else type_name(error)):
            return True
        calls = UNREACHED if outage else PATIENCE + 1
        return search.failed_calls >= calls and self._breakers.refunds(item.claim)

    def _described(self, items: Sequence[Item], error: BaseException) -> Error:
        told = describe(error)
        for item in items:  # it may quote any of them
            told = item.masked(told)
        return told


def _told(item: Item, failure: BaseException | str | None, result: Any) -> Ended:
    if failure is None:
        return item.returned(result)
    if isinstance(failure, BaseException):
        return item.raised(failure)
    message = clean(failure, MESSAGE_LIMIT)
    told = {"type": "BatchFailed", "message": message, "traceback": ""}
    return item.failed(item.masked(told))


def _misfit(task: str, result: Any, number: int) -> str:
    what = f"a list of {len(result)}" if isinstance(result, list) else type_name(result)
    return f"{task} returned {what}: a batch of {number} returns None or a list of {number} results"
