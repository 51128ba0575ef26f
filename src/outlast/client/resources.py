"""The resources that a client's verbs share: store, blobs, registry, poller of results."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

from ..model.arguments import MAX_PAYLOAD
from ..model.errors import InvalidOption
from ..model.job import NewJob
from ..model.lane import QueueLimits
from ..model.task import Registry
from ..store import Store, open_store
from ..store.blobs.store import Blobs, BlobStore, open_blobs
from ..store.notify_limiter import NotifyLimiter
from .ambient import AmbientMode, AmbientTransaction
from .result_waiter import ResultPoller


class ClientResources:
    """The store and the other parts that verbs need. `move` exchanges the stores in place."""

    store: Store
    blobs: Blobs | None  # stores payloads that are too large for a row
    max_args_bytes: int  # for one job's arguments
    result_poller: ResultPoller

    def __init__(
        self, store: Store, blobs: str | BlobStore | None, ambient: AmbientMode = "join"
    ) -> None:
        self.registry = Registry()
        self.declared_queues: dict[str, QueueLimits] = {}
        self.bounded_queues: set[str] = set()  # queues whose enqueues must reserve room
        self.quota_queues: set[str] = set()  # queues whose new jobs are counted
        self.undeclared = False  # whether declarations are not stored yet
        self.notify_limiter = NotifyLimiter()
        # Separate: a notification in a caller's transaction is sent when that commits, if it does.
        self.tx_notify_limiter = NotifyLimiter()
        self.public_url: str | None = None  # of the service, for links
        # Refuses jobs of another database's tenants; None: there is one database.
        self.check_tenants: Callable[[Iterable[NewJob]], None] | None = None
        self.ambient_mode = ambient
        self.ambient: AmbientTransaction | None = None  # None: no transaction was ever bound
        self._open(store, blobs)

    def _open(self, store: Store, blobs: str | BlobStore | None) -> None:
        self.store = store
        self.blobs = None if blobs is None else Blobs(store, open_blobs(blobs))
        self.max_args_bytes = MAX_PAYLOAD if self.blobs is None else self.blobs.limit
        self.result_poller = ResultPoller(store)

    def bind(self, session: object) -> AbstractContextManager[None]:
        if self.ambient is None:
            self.ambient = AmbientTransaction(self.ambient_mode)
        return self.ambient.bind(session)

    def exchange(self, store: Store) -> None:
        """Close the stores and work on another one."""
        location = self.blobs.location if self.blobs else None
        self.close()
        self._open(store, location)
        self.undeclared = bool(self.declared_queues)

    def move(self, url: str | None, schema: str | None, blobs: str | None) -> None:
        """Close the stores and open others; an address that is not given stays."""
        here, location = self.store.address, self.blobs.location if self.blobs else None
        self.close()
        store = open_store(url or here.url, schema or here.schema, self.store.settings)
        self._open(store, blobs or location)
        self.undeclared = bool(self.declared_queues)

    def declare_queue(self, limits: QueueLimits) -> QueueLimits:
        if self.declared_queues.setdefault(limits.name, limits) != limits:
            raise InvalidOption(
                option="queue", reason=f"{limits.name!r} is declared twice, with different limits"
            )
        self.undeclared = True
        if limits.bounded:
            self.bounded_queues.add(limits.name)
        if limits.has_quota:
            self.quota_queues.add(limits.name)
        return limits

    def migrate(self) -> list[int]:
        """Migrate the tables to this release; returns the applied versions."""
        applied = self.store.migrate()
        if self.blobs is not None:
            _ = self.blobs.namespace  # cannot be created inside a caller's transaction
        return applied

    def close(self) -> None:
        self.result_poller.close()
        self.store.close()

    async def aclose(self) -> None:
        self.result_poller.close()
        await self.store.aclose()
