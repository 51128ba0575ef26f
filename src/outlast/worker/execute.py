"""A claimed job in, how it ended out. Nothing here touches the database.

claim ── decode ── call ──┬── returned ────────────── succeeded
          │               ├── raised ──────────────── failed, permanent, postponed
          │               └── stopped from outside ── timed-out, cancelled, released
          └── unreadable ──────────────────────────── undecodable
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable
from concurrent.futures import Executor
from functools import partial
from typing import Any

from ..model.arguments import encode_result
from ..model.breaker import Outage, outage_of
from ..model.errors import (
    BlobUnavailable,
    DependencyDown,
    InvalidArguments,
    InvalidResult,
    NoBlobStore,
    Permanent,
    RetryLater,
)
from ..model.job import Claim
from ..model.lifecycle import Outcome
from ..model.outcome import Ended, Error
from ..model.secret import without
from ..model.task import Definition
from ..model.text import describe
from ..tracing import carry_on, running, trace_of, tracer
from .context import Context
from .referring import Referring, wait_for_store
from .threads import in_thread


def begin(definition: Definition, claim: Claim, context: Context) -> Alone:
    """The way in which this task's attempts are carried out."""
    if definition.isolated:
        from .isolated import IsolatedExecution

        return IsolatedExecution(definition, claim, context)
    kind = AsyncExecution if definition.is_async else ThreadExecution
    return kind(definition, claim, context)


class Execution(Referring):
    """One attempt in progress."""

    def arguments(self) -> dict[str, Any]:
        arguments = self.definition.arguments.decode(self.claim.args)
        if name := self.definition.arguments.context_parameter:
            arguments[name] = self.context
        return arguments

    def interrupt(self, body: asyncio.Task[Ended] | None) -> None:
        """Ask the handler to stop."""
        self.context.cancelled.set()

    def returned(self, result: Any) -> Ended:
        if self.context.completed:
            return self.completed()
        try:
            text = encode_result(result, self.definition.arguments.returns, self.context.largest)
        except BaseException as error:  # a user's serialiser may raise anything
            # The work is done, but its result cannot be kept: running it again would not help.
            return Ended(Outcome.PERMANENT, error=self.described(error))
        return Ended(Outcome.SUCCEEDED, result=text, jobs=tuple(self.context.jobs))

    def raised(self, error: BaseException) -> Ended:
        if self.context.completed:
            return self.completed(error)
        if self.stopped is not None:
            return self.interrupted()
        match error:
            case Permanent() | InvalidResult():  # as in `returned`
                return Ended(Outcome.PERMANENT, error=self.described(error))
            case RetryLater():
                told = self.described(error)
                outcome = Outcome.FAILED if error.spent else Outcome.POSTPONED
                return Ended(outcome, delay=error.seconds, error=told)
            case BlobUnavailable():  # an outage, which is not the job's fault
                told = self.described(error)
                return Ended(
                    Outcome.POSTPONED, delay=wait_for_store(self.claim.attempt), error=told
                )
            case DependencyDown():  # where no breaker holds the task back, it comes back by itself
                told, wait = self.described(error), wait_for_store(self.claim.attempt)
                return Ended(Outcome.POSTPONED, delay=wait, error=told, outage=Outage.CERTAIN)
            case _:
                outage = outage_of(error, self.definition.breaker)
                return Ended(Outcome.FAILED, error=self.described(error), outage=outage)

    def unreadable(self, error: BaseException) -> Ended:
        """What it means that its arguments cannot be had, or read."""
        match error:
            case _ if self.stopped is not None:
                return self.interrupted()
            case BlobUnavailable():
                return self.raised(error)
            case NoBlobStore():
                return self.left_for_others(error)
            case _:
                return undecodable(error)

    def described(self, error: BaseException) -> Error:
        """What is kept of an error: without the secrets that it may quote."""
        return self.masked(describe(error))

    def masked(self, told: Error) -> Error:
        return without(told, self.definition.arguments.hidden_in(self.claim.args))

    def interrupted(self) -> Ended:
        """What a stop from outside means, however the handler took it."""
        return self.completed() if self.context.completed else stopped(self.stopped, self.claim)

    def completed(self, error: BaseException | None = None) -> Ended:
        """The handler has completed its job by itself: handed in once more, that is found to be
        so. What it returned afterwards does not count, what it raised is told of."""
        told = None if error is None else self.described(error)
        return Ended(Outcome.SUCCEEDED, result=self.context.result, error=told)


class Alone(Execution, ABC):
    """An attempt that is carried out by itself; those of a batch are, together."""

    @abstractmethod
    async def run(self, threads: Executor) -> Ended:
        """Carry it out; whatever happens becomes a value."""


class Called(Alone):
    """In this process."""

    async def run(self, threads: Executor) -> Ended:
        try:
            if self.claim.args[:1] == "[":
                await self.afetch(threads)
            arguments = self.arguments()
        except BaseException as error:  # a user's validator may raise anything
            return self.unreadable(error)
        if self.claim.trace is not None:
            carry_on(self.claim.trace)
        if (recorder := tracer()) is not None:
            return await self._recorded(recorder, arguments, threads)
        try:
            result = await self.call(arguments, threads)
        except BaseException as error:
            return self.raised(error)
        ended = self.returned(result)
        return ended if self.context.outlet is None else await self.aput_away(ended, threads)

    async def _recorded(self, recorder: Any, arguments: dict[str, Any], threads: Executor) -> Ended:
        """The same, in a span."""
        try:
            with running(recorder, [self.claim]) as span:
                self.context.run_trace = trace_of(span)
                given = await self.call(arguments, threads)
        except BaseException as error:
            return self.raised(error)
        ended = self.returned(given)
        return ended if self.context.outlet is None else await self.aput_away(ended, threads)

    @abstractmethod
    def call(self, arguments: dict[str, Any], threads: Executor) -> Awaitable[Any]:
        """What it takes to get the handler's answer."""


class AsyncExecution(Called):
    def call(self, arguments: dict[str, Any], threads: Executor) -> Awaitable[Any]:
        handler: Awaitable[Any] = self.definition.function(**arguments)
        return handler

    def interrupt(self, body: asyncio.Task[Ended] | None) -> None:
        super().interrupt(body)
        if body is not None:
            body.cancel()


class ThreadExecution(Called):
    """A sync handler. A thread cannot be stopped: the handler has to look at `ctx.cancelled`."""

    def call(self, arguments: dict[str, Any], threads: Executor) -> Awaitable[Any]:
        return in_thread(threads, partial(self.definition.function, **arguments))


def stopped(why: Outcome | None, claim: Claim) -> Ended:
    match why:
        case Outcome.TIMED_OUT:
            return Ended(Outcome.TIMED_OUT, error=timed_out(claim))
        case Outcome.CANCELLED:
            return Ended(Outcome.CANCELLED, error=_cancelled())
        case _:
            return Ended(Outcome.RELEASED)


def timed_out(claim: Claim) -> Error:
    return {
        "type": "TimedOut",
        "message": f"attempt {claim.attempt} ran longer than its timeout of {claim.timeout:g} s",
        "traceback": "",
    }


def _cancelled() -> Error:
    return {"type": "Cancelled", "message": "cancelled while running", "traceback": ""}


def undecodable(error: BaseException) -> Ended:
    """Its arguments cannot be read: trying again would not help."""
    told = describe(error)
    if isinstance(error, InvalidArguments):
        told["type"] = "Undecodable"
    return Ended(Outcome.UNDECODABLE, error=told)
