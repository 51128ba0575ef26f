"""`ol`: the `Outlast` of a Django project, on a database of its `DATABASES`."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import TYPE_CHECKING, Unpack

from ...client.ambient import AmbientTransaction
from ...client.client import Outlast
from ...model.errors import Unsupported
from ...model.job import Job, NewJob
from ...model.settings import StoreSettings, WorkerOptions
from ...ops.flow_report import FlowState
from ...store import Store, open_store
from .conf import DjangoSettings, read_settings
from .database_url import database_url, locks_file
from .stale_connections import with_fresh_connections
from .store import DjangoStore, in_connection_thread

if TYPE_CHECKING:
    from ...worker.worker import Worker


class DjangoOutlast(Outlast):
    """An `Outlast` that, with `ambient="join"`, uses Django's own connection of each thread: every
    enqueue belongs to the `atomic()` block around it. A worker opens connections of its own; an
    enqueue in a handler still joins an open `atomic()` block."""

    around_handlers = staticmethod(with_fresh_connections)

    def __init__(self, conf: DjangoSettings) -> None:
        self.conf = conf
        super().__init__(
            schema=conf.schema,
            settings=conf.store_settings,
            retention=conf.retention_settings,
            blobs=conf.blobs,
            tenant_required=conf.tenant_required,
            ambient=conf.ambient,
        )
        self._parts.ambient = AmbientTransaction(conf.ambient, self._ambient_transaction)

    def _open_store(
        self, url: str | None, schema: str | None, settings: StoreSettings | None
    ) -> Store:
        if self.conf.ambient == "join":
            return DjangoStore(self.conf.alias, self.conf.schema, self.conf.store_settings)
        return self._own_store()

    def _own_store(self) -> Store:
        return open_store(database_url(self.conf.alias), self.conf.schema, self.conf.store_settings)

    def open_transaction(self) -> object | None:
        """The connection of an open `atomic()` block, without the one around a whole test."""
        from django.db import connections

        connection = connections[self.conf.alias]
        return connection if connection.in_atomic_block else None

    def _ambient_transaction(self) -> object | None:
        found = self.open_transaction()
        apart = found is not None and self.conf.ambient != "join"
        if apart and not isinstance(self.store, DjangoStore) and locks_file(self.conf.alias):
            raise Unsupported(
                reason=f"with OUTLAST['ambient'] = {self.conf.ambient!r} this would be committed"
                " separately, but the surrounding atomic() block locks the SQLite file: call it"
                " outside of the block, or set 'join'"
            )
        return found

    # In async code, an open `atomic()` block is visible only in the thread of the connection.

    async def _aenqueue_jobs(self, jobs: list[NewJob], conn: object = None) -> list[Job]:
        if conn is None and isinstance(self.store, DjangoStore):
            return await in_connection_thread(self._enqueue_jobs, jobs)
        return await super()._aenqueue_jobs(jobs, conn)

    async def _aenqueue_stream(
        self, calls: Iterator[object] | AsyncIterator[object], conn: object = None
    ) -> int:
        if conn is not None or not isinstance(self.store, DjangoStore):
            return await super()._aenqueue_stream(calls, conn)
        if not isinstance(calls, Iterator):
            raise Unsupported(
                reason="an async iterator cannot be read in the thread of Django's connection:"
                " pass a sync iterator"
            )
        return await in_connection_thread(self._enqueue_stream, calls)

    async def acancel(self, id: str, reason: str = "", *, conn: object = None) -> Job:
        if conn is None and isinstance(self.store, DjangoStore):
            return await in_connection_thread(self.cancel, id, reason)
        return await super().acancel(id, reason, conn=conn)

    async def aretry(self, id: str, *, conn: object = None) -> Job:
        if conn is None and isinstance(self.store, DjangoStore):
            return await in_connection_thread(self.retry, id)
        return await super().aretry(id, conn=conn)

    async def acancel_flow(
        self, id: str | None, reason: str = "", *, conn: object = None
    ) -> FlowState:
        if conn is None and isinstance(self.store, DjangoStore):
            return await in_connection_thread(self.cancel_flow, id, reason)
        return await super().acancel_flow(id, reason, conn=conn)

    def use_own_connections(self) -> None:
        """Switch to connections separate from Django's."""
        if isinstance(self.store, DjangoStore):
            self._parts.exchange(self._own_store())

    def worker(
        self,
        queues: Iterable[str] | str | None = None,
        concurrency: int | None = None,
        **settings: Unpack[WorkerOptions],
    ) -> Worker:
        self.use_own_connections()
        return super().worker(queues, concurrency, **settings)


_making = threading.RLock()
_made: list[DjangoOutlast] = []


def default_app() -> DjangoOutlast:
    """The app of this process, created from `settings.OUTLAST` on first use."""
    with _making:
        if not _made:
            _made.append(DjangoOutlast(read_settings()))
        return _made[0]
