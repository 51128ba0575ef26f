"""Durable steps: results that are kept across the attempts of a job.

    look up ─┬─ kept ───────────────────────────────────────────────────────┬─▶ returned
             └─ not kept ─▶ run ─▶ JSON ─▶ stored, if the claim is still held ┘
                                           └ in one transaction with the streamed output

A step is one generator, which a sync handler's thread or an async handler's event loop drives.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import time
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from concurrent import futures
from contextlib import closing, contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple

from ..loops import Backoff
from ..model.arguments.step_value import read, return_annotation, write
from ..model.claim import Claim, ClaimEvent
from ..model.errors import DeadlineExceeded, InvalidOption, StoreBusy, StoreUnavailable
from ..model.options import check_name
from ..ops.operation import Op
from ..ops.steps import keep, look_up
from ..store import OperationRunner
from ..store.uncancelled import uncancelled
from .threads import Threads, in_thread

TRANSIENT_ERRORS = (StoreUnavailable, StoreBusy, DeadlineExceeded)
BACKOFF_RANGE_S = (0.2, 2.0)  # first and longest wait, in seconds

StepFunction = Callable[[], object]
OutputRows = Sequence[ClaimEvent]

in_step: ContextVar[bool] = ContextVar("outlast_in_step", default=False)  # a step is running


@contextmanager
def _inside_step() -> Iterator[None]:
    token = in_step.set(True)
    try:
        yield
    finally:
        in_step.reset(token)


class RunOperation(NamedTuple):
    """A database operation of a step."""

    op: Callable[[], Op[object]]


class CallFunction(NamedTuple):
    """The function call of a step."""

    call: StepFunction


class StepOutput:
    """The streamed output of an attempt that may not be stored yet; it is stored with a step.

    `rows` returns it, and `stored` is called with rows that have been stored.
    """

    def __init__(
        self,
        rows: Callable[[], OutputRows],
        limit: int,
        stored: Callable[[OutputRows], None] = lambda _: None,
    ) -> None:
        self.rows = rows
        self.limit = limit  # of all output of a job, in bytes
        self.stored = stored


class StepResult(NamedTuple):
    """The final result of a step."""

    value: Any


StepGenerator = Generator[RunOperation | CallFunction, Any, Any]


class Steps:
    """The steps of one attempt."""

    def __init__(
        self,
        claim: Claim,
        store: OperationRunner,
        check: Callable[[], None],
        output: StepOutput,
    ) -> None:
        self._claim = claim
        self._store = store
        self._check = check  # raises when the claim is known to be lost
        self._output = output
        self._names: set[str] = set()

    # One step

    def _step(self, name: str, call: StepFunction) -> StepGenerator:
        self._check()
        with self._reserve_name(name):
            job, fence = self._claim.id, self._claim.fence
            annotation = return_annotation(call)
            # Under the first claim, no step can be kept yet.
            stored = (yield RunOperation(partial(look_up, job, name))) if fence > 1 else None
            if stored is None:
                given = yield CallFunction(call)
                text = write(name, given, annotation)
                self._check()
                stored = yield from self._keep(name, text)
            return read(name, stored, annotation)

    def _keep(self, name: str, text: str) -> StepGenerator:
        rows = self._output.rows()
        keeping = partial(keep, self._claim, name, text, rows, self._output.limit)
        stored = yield RunOperation(keeping)
        self._output.stored(rows)
        return stored

    def run(self, name: str, call: StepFunction) -> object:
        return self.drive(self._step(name, call), name)

    async def arun(self, name: str, call: StepFunction) -> Any:
        return await self.adrive(self._step(name, call))

    def drive(self, generator: StepGenerator, name: str = "") -> object:
        with closing(generator) as step:
            part = _advance(step)
            while True:
                match part:
                    case RunOperation(op):
                        part = _advance(step, self._run_operation(op))
                    case CallFunction(call):
                        with _inside_step():
                            given = _call(name, call)
                        part = _advance(step, given)
                    case StepResult(value):
                        return value

    async def adrive(self, generator: StepGenerator) -> object:
        with closing(generator) as step:
            part = _advance(step)
            while True:
                match part:
                    case RunOperation(op):
                        part = _advance(step, await uncancelled(self._arun_operation(op)))
                    case CallFunction(call):
                        with _inside_step():
                            given = await _acall(call)
                        part = _advance(step, given)
                    case StepResult(value):
                        return value

    def _run_operation(self, op: Callable[[], Op[object]]) -> object:
        """Retry while the database is unavailable, for as long as the claim may be held: otherwise
        the step would have to run again."""
        backoff = Backoff(*BACKOFF_RANGE_S)
        while True:
            try:
                return self._store.run(op)
            except TRANSIENT_ERRORS:
                time.sleep(backoff.failed())
                self._check()

    async def _arun_operation(self, op: Callable[[], Op[object]]) -> object:
        backoff = Backoff(*BACKOFF_RANGE_S)
        while True:
            try:
                return await self._store.arun(op)
            except TRANSIENT_ERRORS:
                await asyncio.sleep(backoff.failed())
                self._check()

    @contextmanager
    def _reserve_name(self, name: str) -> Iterator[None]:
        """A name belongs to one step. A failed step stored nothing and may be retried."""
        self._refuse_taken(name)
        self._names.add(name)
        try:
            yield
        except BaseException:
            self._names.discard(name)
            raise

    def _refuse_taken(self, *names: str) -> None:
        for name in names:
            check_name("step", name)
            if name in self._names:
                reason = f"{name!r} is taken in this attempt: every step needs a name of its own"
                raise InvalidOption(option="step", reason=reason)

    # Many steps at once

    def run_all(self, calls: Mapping[str, StepFunction], limit: int) -> dict[str, object]:
        many = ParallelSteps(calls, limit)
        self._refuse_taken(*calls)
        threads = Threads(limit)
        try:
            runners = [
                threads.submit(contextvars.copy_context().run, many.work, self.run)
                for _ in range(min(limit, len(calls)))
            ]
            futures.wait(runners)
        finally:
            threads.shutdown()
        return many.results()

    async def arun_all(self, calls: Mapping[str, StepFunction], limit: int) -> dict[str, object]:
        many = ParallelSteps(calls, limit)
        self._refuse_taken(*calls)
        async with asyncio.TaskGroup() as runners:  # waits for all, even when cancelled
            for _ in range(min(limit, len(calls))):
                runners.create_task(many.awork(self.arun))
        return many.results()


class ParallelSteps:
    """Steps shared by a limited number of runners. After a failure no further step starts; started
    steps end and are stored."""

    def __init__(self, calls: Mapping[str, StepFunction], limit: int) -> None:
        if not isinstance(limit, int) or limit < 1:
            raise InvalidOption(option="limit", reason=f"must be 1 or more, not {limit!r}")
        self._names = list(calls)
        self._waiting = deque(calls.items())
        self._given: dict[str, object] = {}
        self._errors: dict[str, BaseException] = {}

    def work(self, run: Callable[[str, StepFunction], object]) -> None:
        while (step := self._next()) is not None:
            try:
                self._given[step[0]] = run(*step)
            except BaseException as error:
                self._errors[step[0]] = error

    async def awork(self, run: Callable[[str, StepFunction], Awaitable[object]]) -> None:
        while (step := self._next()) is not None:
            try:
                self._given[step[0]] = await run(*step)
            except asyncio.CancelledError as error:
                self._errors[step[0]] = error
                raise
            except BaseException as error:
                self._errors[step[0]] = error

    def _next(self) -> tuple[str, StepFunction] | None:
        try:
            return None if self._errors else self._waiting.popleft()
        except IndexError:
            return None

    def results(self) -> dict[str, object]:
        """All results, or the first error with notes about the others."""
        failed = [(name, self._errors[name]) for name in self._names if name in self._errors]
        if not failed:
            return {name: self._given[name] for name in self._names}
        for name, error in failed[1:]:
            failed[0][1].add_note(f"step {name!r} failed too: {type(error).__name__}")
        raise failed[0][1]


def _advance(
    step: StepGenerator, answer: object = None
) -> RunOperation | CallFunction | StepResult:
    """The next request of a step, given the last response."""
    try:
        return step.send(answer)
    except StopIteration as stop:
        return StepResult(stop.value)


def in_event_loop() -> bool:
    """Whether this thread runs an event loop, where steps must be awaited."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _call(name: str, call: StepFunction) -> object:
    given = call()
    if inspect.isawaitable(given):
        if inspect.iscoroutine(given):
            given.close()
        reason = f"{name!r} is an async function, which only an async handler can await"
        raise InvalidOption(option="step", reason=reason)
    return given


async def _acall(call: StepFunction) -> object:
    """Await an async function; run any other in a thread, which cannot be stopped, so that a cancel
    waits for it."""
    if inspect.iscoroutinefunction(call):
        return await call()
    threads = Threads(1)
    try:
        given = await uncancelled(in_thread(threads, call))
    finally:
        threads.shutdown()
    return await given if inspect.isawaitable(given) else given
