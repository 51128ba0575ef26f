"""Inline drain: runs jobs in the calling thread, one after the other, on the caller's connection.

The operations and the decisions are those of a worker: claim, run, decide, finish.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ...model.arguments import ItemArguments
from ...model.batch import results_of
from ...model.claim import Claim, ClaimEvent
from ...model.errors import OutlastError, UnknownTask
from ...model.ids import new_instance_id
from ...model.job import Job
from ...model.outcome import AttemptEnd
from ...ops.claim import ClaimRequest, claim, poll, promote
from ...ops.finish import finish
from ...ops.lanes import LaneTurn
from ...worker.batch_context import BatchContext
from ...worker.context import Context
from ...worker.executor import Execution
from ...worker.outcome_policy import OutcomePolicy

if TYPE_CHECKING:
    from .client import DjangoOutlast

LEASE_S = 86400.0


class InlineDrain:
    """Runs the jobs of an app until none is ready."""

    def __init__(self, app: DjangoOutlast) -> None:
        self._app = app
        self._store = app.store
        self._worker = new_instance_id()
        self._decide = OutcomePolicy(app.registry).decide
        self._events: list[ClaimEvent] = []

    def run(self, *, scheduled: bool, limit: int) -> list[Job]:
        self._app._declare_queues()  # as a worker does when it starts
        ran: dict[str, None] = {}  # a retried job counts once
        for _ in range(limit):
            if (taken := self._next(scheduled)) is None:
                return [self._app.job(id) for id in ran]
            self._attempt(taken)
            ran[taken.id] = None
        raise AssertionError(f"jobs are still ready after {limit} attempts: {self._app.counts()}")

    def _next(self, scheduled: bool) -> Claim | None:
        self._store.run(promote)
        pending = self._store.run(poll)
        if not pending.queues and scheduled:
            self._app.reschedule_all(delay=0)
            self._store.run(promote)
            pending = self._store.run(poll)
        for queue in sorted(pending.queues):
            turn = LaneTurn(adopt=True, deep=True) if queue in pending.limited else None
            request = ClaimRequest(self._worker, queue, 1, LEASE_S, turn=turn)
            if taken := self._store.run(claim, request):
                return taken[0]
        return None

    def _attempt(self, taken: Claim) -> None:
        definition = self._app.registry.get(taken.task)
        if definition is None:
            raise UnknownTask(task=taken.task)
        context = Context(taken, self._add_event, self._store, blobs=self._app.blobs)
        with usable_transaction(self._app.conf.alias):
            ended = ExecutionHere(definition, taken, context).run()
        events, self._events = self._events, []
        self._store.run(finish, [self._decide(taken, ended)], events)

    def _add_event(self, owner: Claim, kind: str, data: str) -> None:
        self._events.append(owner.event_row(kind, data, len(self._events) + 1))


@contextmanager
def usable_transaction(alias: str) -> Iterator[None]:
    """After a database error, which aborts the test's transaction, undo the attempt's writes, so
    that its outcome can be stored."""
    from django.db import connections

    connection = connections[alias]
    point = connection.savepoint()
    yield
    if connection.needs_rollback or _is_aborted(connection):
        connection.needs_rollback = False
        connection.savepoint_rollback(point)
    connection.savepoint_commit(point)


def _is_aborted(connection: Any) -> bool:
    """Whether PostgreSQL accepts only a rollback."""
    if connection.vendor != "postgresql" or connection.connection is None:
        return False
    from psycopg.pq import TransactionStatus

    return bool(connection.connection.info.transaction_status == TransactionStatus.INERROR)


class ExecutionHere(Execution):
    """An attempt in this thread. An item of a batch task is a batch of one."""

    def run(self) -> AttemptEnd:
        try:
            if self.has_blob_arguments:
                self.fetch()
            call = self._call()
        except BaseException as error:  # a user's validator may raise anything
            return self.unreadable(error)
        try:
            result = call()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return self.raised(error)
        return self.store_large(self.returned(result))

    def _call(self) -> Callable[[], object]:
        definition = self.definition
        if definition.batch is None:
            arguments = self.arguments()
        else:
            items = cast(ItemArguments, definition.arguments)
            context = BatchContext([self.context], self.context.cancelled)
            arguments = items.call([items.item(self.claim.args)], context)
        call = partial(definition.function, **arguments)
        if definition.is_async:
            from asgiref.sync import async_to_sync

            call = partial(async_to_sync(definition.function), **arguments)
        return call if definition.batch is None else partial(_only_result, call)


def _only_result(call: Callable[[], object]) -> object:
    results = results_of(call(), 1)
    if results is None:
        raise OutlastError("a batch task must return a list with one result for each item, or None")
    return results[0]
