"""Completion: a handler finishes its job in one transaction with its own writes.

    BEGIN ── the handler's writes ── follow-up jobs, the job's end ── COMMIT
                                     └ the claim is lost: all of it is rolled back

After a COMMIT whose response was lost, the outcome is looked up by the fence, never guessed. If
even the lookup fails, the handler gets the error, and the worker's own report is judged by the same
fence.
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
from ..model.outcome import AttemptEnd, Transition, decide
from ..model.retry import Retry
from ..ops.complete import complete, completed
from ..ops.operation import Op
from ..store import Store
from ..store.handler_connection import (
    AsyncHandlerTransaction,
    HandlerTransaction,
    aopen_transaction,
    open_transaction,
)
from ..store.uncancelled import uncancelled
from .steps import in_event_loop

if TYPE_CHECKING:
    from .context import Context


class CompletionTransaction:
    """Transaction that completes the job: `with` in a sync handler, `async with` in an async one
    returns its connection."""

    def __init__(self, context: Context, store: Store, result: str | None) -> None:
        self._context = context
        self._store = store
        self._result = result
        self._entered: AbstractContextManager[object] | None = None
        self._aentered: AbstractAsyncContextManager[object] | None = None

    def __enter__(self) -> Any:
        if in_event_loop():
            raise WrongConnection(reason="in an async handler, use `async with ctx.completing(…)`")
        self._entered = self._transaction()
        return self._entered.__enter__()

    def __exit__(self, *error: Any) -> bool | None:
        assert self._entered is not None
        return self._entered.__exit__(*error)

    async def __aenter__(self) -> Any:
        self._aentered = self._atransaction()
        return await self._aentered.__aenter__()

    async def __aexit__(self, *error: Any) -> bool | None:
        assert self._aentered is not None
        return await self._aentered.__aexit__(*error)

    @contextmanager
    def _transaction(self) -> Iterator[object]:
        self._store_large_result()
        with self._context._completing_alone(), open_transaction(self._store) as transaction:
            yield transaction.connection
            self._finish(transaction)

    @asynccontextmanager
    async def _atransaction(self) -> AsyncIterator[object]:
        if self._context.blob_slots is not None:
            await asyncio.to_thread(self._store_large_result)
        with self._context._completing_alone():
            async with aopen_transaction(self._store) as transaction:
                yield transaction.connection
                await uncancelled(self._afinish(transaction))

    def _store_large_result(self) -> None:
        """Store a large result before the transaction, to keep that short."""
        if self._context.blob_slots is not None and self._result is not None:
            hold = self._context._claim.claim_key
            self._result = self._context.blob_slots.put_result(hold, self._result)

    def _jobs(self) -> tuple[NewJob, ...]:
        jobs = tuple(self._context.jobs)
        if self._context.blob_slots is None or not jobs:
            return jobs
        return tuple(self._context.blob_slots.put_arguments(jobs))

    def _finish(self, transaction: HandlerTransaction) -> None:
        transition = self._transition(self._jobs())
        transaction.run(self._completion(transition))
        try:
            transaction.commit()
        except StoreError:
            if not self._store.run(completed, transition):
                raise
        self._context._complete(self._result)

    async def _afinish(self, transaction: AsyncHandlerTransaction) -> None:
        jobs = await asyncio.to_thread(self._jobs) if self._context.jobs else ()
        transition = self._transition(jobs)
        await transaction.run(self._completion(transition))
        try:
            await transaction.commit()
        except StoreError:
            if not await self._store.arun(completed, transition):
                raise
        self._context._complete(self._result)

    def _completion(self, transition: Transition) -> Op[None]:
        limit = self._store.settings.stream_limit
        return complete(transition, self._context._events_to_store(), limit)

    def _transition(self, jobs: tuple[NewJob, ...]) -> Transition:
        """The transition that the worker would report had the handler returned."""
        context = self._context
        context._check()
        ended = AttemptEnd(Outcome.SUCCEEDED, result=self._result, jobs=jobs)
        return decide(context._claim, ended, Retry(), 0.0)._replace(trace=context.run_trace)
