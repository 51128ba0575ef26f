"""A handler completes its job by itself, in one transaction with its own writes.

    BEGIN ── the handler's writes ── follow-up jobs, the job's end ── COMMIT
                                     └ the claim is lost: all of it is rolled back

A COMMIT whose answer got lost is looked up by the fence, never guessed. Where even that cannot be
had the handler gets the error, and whatever its worker then says of the attempt is judged by the
same fence.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from typing import TYPE_CHECKING, Any

from ..model.errors import StoreError, WrongConnection
from ..model.job import NewJob
from ..model.lifecycle import Outcome
from ..model.outcome import Ended, Transition, decide
from ..model.retry import Retry
from ..ops.complete import complete, completed
from ..store.lent import AsyncLent, Lent, alend, lend
from ..store.settling import settled
from .steps import awaited

if TYPE_CHECKING:
    from .context import Context


class Completing:
    """`with` in a sync handler, `async with` in an async one: gives the connection."""

    def __init__(self, context: Context, result: str | None) -> None:
        self._context = context
        self._result = result
        self._entered: AbstractContextManager[Any] | None = None
        self._aentered: AbstractAsyncContextManager[Any] | None = None

    def __enter__(self) -> Any:
        if awaited():
            raise WrongConnection(reason="in an async handler, say `async with ctx.completing(…)`")
        self._entered = self._lending()
        return self._entered.__enter__()

    def __exit__(self, *error: Any) -> bool | None:
        assert self._entered is not None
        return self._entered.__exit__(*error)

    async def __aenter__(self) -> Any:
        self._aentered = self._alending()
        return await self._aentered.__aenter__()

    async def __aexit__(self, *error: Any) -> bool | None:
        assert self._aentered is not None
        return await self._aentered.__aexit__(*error)

    @contextmanager
    def _lending(self) -> Iterator[Any]:
        self._put_away()
        with self._context._alone(), lend(self._context._store) as lent:
            yield lent.connection
            self._finish(lent)

    @asynccontextmanager
    async def _alending(self) -> AsyncIterator[Any]:
        if self._context.outlet is not None:
            await asyncio.to_thread(self._put_away)
        with self._context._alone():
            async with alend(self._context._store) as lent:
                yield lent.connection
                await settled(self._afinish(lent))

    def _put_away(self) -> None:
        """What is large of the result is kept before the transaction, which then is short."""
        if self._context.outlet is not None and self._result is not None:
            hold = self._context._claim.hold
            self._result = self._context.outlet.put_result(hold, self._result)

    def _jobs(self) -> tuple[NewJob, ...]:
        jobs = tuple(self._context.jobs)
        if self._context.outlet is None or not jobs:
            return jobs
        return tuple(self._context.outlet.put_arguments(jobs))

    def _finish(self, lent: Lent) -> None:
        transition = self._transition(self._jobs())
        lent.run(complete(transition, self._context._unstored()))
        try:
            lent.commit()
        except StoreError:
            if not self._context._store.run(completed, transition):
                raise
        self._context._complete(self._result)

    async def _afinish(self, lent: AsyncLent) -> None:
        jobs = await asyncio.to_thread(self._jobs) if self._context.jobs else ()
        transition = self._transition(jobs)
        await lent.run(complete(transition, self._context._unstored()))
        try:
            await lent.commit()
        except StoreError:
            if not await self._context._store.arun(completed, transition):
                raise
        self._context._complete(self._result)

    def _transition(self, jobs: tuple[NewJob, ...]) -> Transition:
        """What the worker would hand in, had the handler returned."""
        context = self._context
        context._check()
        ended = Ended(Outcome.SUCCEEDED, result=self._result, jobs=jobs)
        return decide(context._claim, ended, Retry(), 0.0)._replace(trace=context.run_trace)
