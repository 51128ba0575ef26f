"""Executor: a claimed job in, the end of its attempt out. Nothing here touches the database.

claim ── decode ── call ──┬── returned ────────────── succeeded
          │               ├── raised ──────────────── failed, permanent, postponed
          │               ├── waits ───────────────── waited
          │               └── stopped from outside ── timed-out, cancelled, released
          └── unreadable ──────────────────────────── undecodable
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable
from concurrent.futures import Executor
from functools import partial

from ..model.arguments import encode_result
from ..model.breaker import Outage, outage_of
from ..model.claim import Claim
from ..model.errors import (
    BlobUnavailable,
    DependencyDown,
    InvalidArguments,
    InvalidOption,
    InvalidResult,
    NoBlobStore,
    NotAttempted,
    Permanent,
    RetryLater,
)
from ..model.lifecycle import Outcome
from ..model.outcome import AttemptEnd, Error
from ..model.safe_text import error_record
from ..model.secret import mask
from ..model.task import TaskDefinition
from ..model.wait import waiting_in
from ..tracing import continue_trace, running, trace_of, tracer
from .blob_io import BlobBacked, store_retry_delay
from .context import Context
from .threads import in_thread

SINGLE_NOT_ATTEMPTED_WAIT_S = 1.0  # seconds; without a delay, it would be claimed in a loop
SUCCEEDED = AttemptEnd(Outcome.SUCCEEDED)  # without a result or follow-up jobs, as in most cases


def new_execution(definition: TaskDefinition, claim: Claim, context: Context) -> SingleExecution:
    """The execution of an attempt of this task."""
    if definition.isolated:
        from .isolated import IsolatedExecution

        return IsolatedExecution(definition, claim, context)
    kind = AsyncExecution if definition.is_async else ThreadExecution
    return kind(definition, claim, context)


class Execution(BlobBacked):
    """One attempt in progress."""

    def arguments(self) -> dict[str, object]:
        arguments = self.definition.arguments.decode(self.claim.args)
        if name := self.definition.arguments.context_parameter:
            arguments[name] = self.context
            if self.definition.signals:
                self.context.waits.signals = self.definition.signals
        return arguments

    def interrupt(self, body: asyncio.Task[AttemptEnd] | None) -> None:
        """Ask the handler to stop."""
        self.context.cancelled.set()

    def returned(self, result: object) -> AttemptEnd:
        if self.context.completed:
            return self.completed()
        if self.context.has_waited:
            return AttemptEnd(Outcome.FAILED, error=self.described(_caught_wait()))
        if result is None and self._has_stopped():
            return self.interrupted()
        jobs = tuple(self.context.jobs)
        if result is None:
            return AttemptEnd(Outcome.SUCCEEDED, jobs=jobs) if jobs else SUCCEEDED
        try:
            text = encode_result(
                result, self.definition.arguments.returns, self.context.inline_limit
            )
        except BaseException as error:  # a user's serialiser may raise anything
            # The work is done, but its result cannot be kept: running it again would not help.
            return AttemptEnd(Outcome.PERMANENT, error=self.described(error))
        return AttemptEnd(Outcome.SUCCEEDED, result=text, jobs=jobs)

    def _has_stopped(self) -> bool:
        """Whether a handler that returned nothing has seen that it should stop. A batch handler
        reports success by its return: it goes on for its other items."""
        batch = self.definition.batch
        return self.stopped is not None and batch is None and self.context.cancelled.seen

    def raised(self, error: BaseException) -> AttemptEnd:
        if self.context.completed:
            return self.completed(error)
        if self.stopped is not None:
            return self.interrupted()
        if (begun := waiting_in(error)) is not None:
            return AttemptEnd(Outcome.WAITED, wait=begun)
        match error:
            case Permanent() | InvalidResult():  # as in `returned`
                return AttemptEnd(Outcome.PERMANENT, error=self.described(error))
            case RetryLater():
                described = self.described(error)
                outcome = Outcome.FAILED if error.spent else Outcome.POSTPONED
                return AttemptEnd(outcome, delay=error.seconds, error=described)
            case BlobUnavailable():  # an outage: the job is not at fault
                described = self.described(error)
                return AttemptEnd(
                    Outcome.POSTPONED, delay=store_retry_delay(self.claim.attempt), error=described
                )
            case NotAttempted():
                wait = None if self.definition.batch is not None else SINGLE_NOT_ATTEMPTED_WAIT_S
                return AttemptEnd(Outcome.RELEASED, delay=wait, quiet=True)
            case DependencyDown():  # the delay matters for tasks without a breaker
                described, wait = self.described(error), store_retry_delay(self.claim.attempt)
                return AttemptEnd(
                    Outcome.POSTPONED, delay=wait, error=described, outage=Outage.CERTAIN
                )
            case _:
                outage = outage_of(error, self.definition.breaker)
                return AttemptEnd(Outcome.FAILED, error=self.described(error), outage=outage)

    def unreadable(self, error: BaseException) -> AttemptEnd:
        """The end of an attempt whose arguments cannot be fetched or decoded."""
        match error:
            case _ if self.stopped is not None:
                return self.interrupted()
            case BlobUnavailable():
                return self.raised(error)
            case NoBlobStore():
                return self.released_without_store(error)
            case _:
                return undecodable_end(error)

    def described(self, error: BaseException) -> Error:
        """The record of an error, with quoted secrets masked."""
        return self.masked(error_record(error))

    def masked(self, error: Error) -> Error:
        return mask(error, self.definition.arguments.secret_values(self.claim.args))

    def interrupted(self) -> AttemptEnd:
        """The end of an attempt that was stopped from outside, whatever the handler returned."""
        return self.completed() if self.context.completed else stopped_end(self.stopped, self.claim)

    def completed(self, error: BaseException | None = None) -> AttemptEnd:
        """The end of an attempt whose handler has completed the job itself; storing the success
        again changes nothing. A later result is ignored, a later error is recorded."""
        described = None if error is None else self.described(error)
        return AttemptEnd(Outcome.SUCCEEDED, result=self.context.result, error=described)


class SingleExecution(Execution, ABC):
    """An attempt of a single job; items of a batch run together."""

    @abstractmethod
    async def run(self, threads: Executor) -> AttemptEnd:
        """Run the attempt; every outcome becomes a value."""


class InProcessExecution(SingleExecution):
    """An attempt that runs in the worker's process."""

    async def run(self, threads: Executor) -> AttemptEnd:
        try:
            if self.claim.args[:1] == "[":
                await self.afetch(threads)
            arguments = self.arguments()
        except BaseException as error:  # a user's validator may raise anything
            return self.unreadable(error)
        if self.claim.trace is not None:
            continue_trace(self.claim.trace)
        if (recorder := tracer()) is not None:
            return await self._traced(recorder, arguments, threads)
        try:
            result = await self.call(arguments, threads)
        except BaseException as error:
            self.context._end()
            return self.raised(error)
        self.context._end()
        ended = self.returned(result)
        return ended if self.context.blob_slots is None else await self.astore_large(ended, threads)

    async def _traced(
        self, recorder: object, arguments: dict[str, object], threads: Executor
    ) -> AttemptEnd:
        """Run the handler in a span."""
        try:
            with running(recorder, [self.claim]) as span:
                self.context.run_trace = trace_of(span)
                given = await self.call(arguments, threads)
        except BaseException as error:
            self.context._end()
            return self.raised(error)
        self.context._end()
        ended = self.returned(given)
        return ended if self.context.blob_slots is None else await self.astore_large(ended, threads)

    @abstractmethod
    def call(self, arguments: dict[str, object], threads: Executor) -> Awaitable[object]:
        """Call the handler; the awaitable gives its result."""


class AsyncExecution(InProcessExecution):
    def call(self, arguments: dict[str, object], threads: Executor) -> Awaitable[object]:
        handler: Awaitable[object] = self.definition.handler(**arguments)
        return handler

    def interrupt(self, body: asyncio.Task[AttemptEnd] | None) -> None:
        super().interrupt(body)
        if body is not None:
            body.cancel()


class ThreadExecution(InProcessExecution):
    """A sync handler, in a thread. No thread can be stopped: handlers must check
    `ctx.cancelled`."""

    def call(self, arguments: dict[str, object], threads: Executor) -> Awaitable[object]:
        return in_thread(threads, partial(self.definition.handler, **arguments))


def stopped_end(reason: Outcome | None, claim: Claim) -> AttemptEnd:
    match reason:
        case Outcome.TIMED_OUT:
            return AttemptEnd(Outcome.TIMED_OUT, error=timeout_error(claim))
        case Outcome.CANCELLED:
            return AttemptEnd(Outcome.CANCELLED, error=_cancelled_error())
        case _:
            return AttemptEnd(Outcome.RELEASED)


def timeout_error(claim: Claim) -> Error:
    return {
        "type": "TimedOut",
        "message": f"attempt {claim.attempt} ran longer than its timeout of {claim.timeout:g} s",
        "traceback": "",
    }


def _cancelled_error() -> Error:
    return {"type": "Cancelled", "message": "cancelled while running", "traceback": ""}


def _caught_wait() -> InvalidOption:
    reason = (
        "was caught by the handler, which then returned: let it end the attempt (`except Exception`"
        " does not catch it; `except BaseException`, a bare `except` and `gather(…,"
        " return_exceptions=True)` do)"
    )
    return InvalidOption(option="wait", reason=reason)


def undecodable_end(error: BaseException) -> AttemptEnd:
    """The end of an attempt whose arguments cannot be decoded: a retry would not help."""
    described = error_record(error)
    if isinstance(error, InvalidArguments):
        described["type"] = "Undecodable"
    return AttemptEnd(Outcome.UNDECODABLE, error=described)
