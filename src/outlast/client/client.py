"""Outlast: define tasks, enqueue jobs, wait for them, work. Every sync verb has an a-twin.

Verbs are in files by subject. To add one, write it there as a coroutine over a `Face`, and name its
two methods here (see `faces`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, cast, overload

from ..model.errors import InvalidOption
from ..model.flow import Enqueueable
from ..model.flow_builder import build_jobs
from ..model.job import Job
from ..model.lane import QueueLimits
from ..model.settings import (
    EnqueueSettings,
    RetentionSettings,
    StoreSettings,
    WorkerOptions,
    WorkerSettings,
    checked,
)
from ..model.signal_link import check_public_url
from ..model.task import Call, Registry
from ..store import Store, open_store
from ..store.blobs.store import Blobs, BlobStore
from ..task_decorator import task
from . import bridges as bridge_verbs
from . import bulk as bulk_verbs
from . import declarations
from . import enqueue as enqueue_verbs
from . import events as event_verbs
from . import flows as flow_verbs
from . import jobs as job_verbs
from . import limits as limit_verbs
from . import queues as queue_verbs
from . import results as result_verbs
from . import schedules as schedule_verbs
from . import signal_links as link_verbs
from . import signals as signal_verbs
from . import streams as stream_verbs
from . import workers as worker_verbs
from .ambient import AmbientMode, check_ambient
from .enqueue_stream import enqueue_stream
from .faces import AsyncFace, BlockingFace, twins
from .resources import ClientResources
from .verb_arguments import check_names

if TYPE_CHECKING:
    from ..bridges.inbox import Inbox
    from ..bridges.outbox import Outbox
    from ..task_decorator import TaskDecorator
    from ..webhooks.webhook import Webhook
    from ..worker.protocols import WorkerService
    from ..worker.worker import Worker

T = TypeVar("T")


class Outlast:
    """A job system in a database.

    `url` is `sqlite:///file.db` or `postgresql://…`; without one, `$OUTLAST_URL`, else
    `sqlite:///outlast.db`. `schema` holds our tables; without one, `$OUTLAST_SCHEMA`, else
    `outlast`. It opens connections on first use; the first enqueue or worker creates missing
    tables.

    `blobs` keeps arguments and results that are too large for a row: `file:///a/directory` or a
    `BlobStore`; without one, `$OUTLAST_BLOBS`, else they are refused.

    With `tenant_required` (or `$OUTLAST_TENANT_REQUIRED`), a job that names no tenant is refused
    with `TenantRequired`, however it is enqueued.

    `public_url` is the address under which people reach the service, for `signal_link`; without
    one, `$OUTLAST_PUBLIC_URL`.

    `ambient` decides about an enqueue without `conn` inside a transaction that was bound with
    `bind`: `join` it, `warn` once that the job commits by itself, or `off`.
    """

    around_handlers: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None

    def __init__(  # noqa: PLR0913 - each of them has a default
        self,
        url: str | None = None,
        *,
        schema: str | None = None,
        settings: StoreSettings | None = None,
        retention: RetentionSettings | None = None,
        blobs: str | BlobStore | None = None,
        tenant_required: bool | None = None,
        public_url: str | None = None,
        ambient: AmbientMode = "join",
    ) -> None:
        location = blobs or os.environ.get("OUTLAST_BLOBS") or None
        address = check_public_url(public_url or os.environ.get("OUTLAST_PUBLIC_URL") or None)
        store = self._open_store(url, schema, settings)
        self._parts = parts = ClientResources(store, location, check_ambient(ambient))
        parts.public_url = address
        self._blocking, self._async = BlockingFace(parts), AsyncFace(parts)
        self.retention = checked("retention", retention, RetentionSettings)
        self.webhooks: dict[str, Webhook] = {}
        required = EnqueueSettings.of(tenant_required=tenant_required)
        self.tenant_required = required.tenant_required
        self.declared_outboxes: dict[str, Outbox] = {}
        self.declared_sources: dict[str, Inbox] = {}

    def _open_store(
        self, url: str | None, schema: str | None, settings: StoreSettings | None
    ) -> Store:
        return open_store(url, schema, checked("settings", settings, StoreSettings))

    @property
    def store(self) -> Store:
        return self._parts.store

    @property
    def blobs(self) -> Blobs | None:
        return self._parts.blobs

    @property
    def registry(self) -> Registry:
        return self._parts.registry

    @property
    def declared_queues(self) -> Mapping[str, QueueLimits]:
        return self._parts.declared_queues

    @property
    def max_args_bytes(self) -> int:
        """Maximum size of one job's arguments."""
        return self._parts.max_args_bytes

    # Define

    task: TaskDecorator = cast(Any, task)
    webhook = declarations.webhook
    outbox = declarations.outbox
    source = declarations.source
    queue = declarations.queue
    schedule = declarations.schedule

    def _serving(self, tenant: str, database: Sequence[str] | None) -> Self:
        """The app for a job of this tenant, in this database, whose worker may have been started
        with --url; see `Databases`."""
        address = self.store.address
        if database is not None and list(database) != [address.url, address.schema]:
            self.move(*database)
        return self

    def _worker_services(self, *, sources: bool, remote: bool = False) -> list[WorkerService]:
        """The services that run beside a worker of this app; a remote one has no database."""
        if not self.declared_outboxes and not self.declared_sources:
            return []
        from ..bridges.services import worker_services

        return worker_services(self, sources=sources and not remote, announce=not remote)

    # Enqueue

    @overload
    def enqueue(self, *calls: Call[T], conn: object = None) -> list[Job[T]]: ...
    @overload
    def enqueue(self, *calls: Enqueueable, conn: object = None) -> list[Job]: ...
    @overload
    def enqueue(self, calls: Iterator[Call], /, *, conn: object = None) -> int: ...

    def enqueue(self, *calls: object, conn: object = None) -> Any:
        """Enqueue calls, chains, groups and flows, all or none; one job for each call, in order.

        Of an iterator of calls, such as a generator, only a part is in memory at any time; returns
        the number of jobs."""
        if len(calls) == 1 and calls[0].__class__ is not Call and isinstance(calls[0], Iterator):
            return self._enqueue_stream(calls[0], conn)
        return self._enqueue_jobs(build_jobs(calls, limit=self.max_args_bytes), conn)

    @overload
    async def aenqueue(self, *calls: Call[T], conn: object = None) -> list[Job[T]]: ...
    @overload
    async def aenqueue(self, *calls: Enqueueable, conn: object = None) -> list[Job]: ...
    @overload
    async def aenqueue(
        self, calls: Iterator[Call] | AsyncIterator[Call], /, *, conn: object = None
    ) -> int: ...

    async def aenqueue(self, *calls: object, conn: object = None) -> Any:
        if len(calls) == 1 and isinstance(calls[0], Iterator | AsyncIterator):
            return await self._aenqueue_stream(calls[0], conn)
        return await self._aenqueue_jobs(build_jobs(calls, limit=self.max_args_bytes), conn)

    _receive_jobs, _areceive_jobs = twins(enqueue_verbs.receive_jobs)
    _enqueue_jobs, _aenqueue_jobs = twins(enqueue_verbs.enqueue_jobs)
    _enqueue_stream, _aenqueue_stream = twins(enqueue_stream)

    def bind(self, session: object) -> AbstractContextManager[None]:
        """`with ol.bind(session):` makes the session's transaction ambient: an enqueue without
        `conn` in this thread or asyncio task belongs to it. Accepts the same objects as `conn`."""
        return self._parts.bind(session)

    # Results

    result, aresult = result_verbs.result, result_verbs.aresult
    _outcome, _aoutcome = twins(result_verbs.outcome)

    # Jobs

    job, ajob = twins(job_verbs.job)
    jobs, ajobs = twins(job_verbs.jobs)
    counts, acounts = twins(job_verbs.counts)
    history, ahistory = twins(job_verbs.history)
    explain, aexplain = twins(job_verbs.explain)
    cancel, acancel = twins(job_verbs.cancel)
    retry, aretry = twins(job_verbs.retry)
    reclaim, areclaim = twins(job_verbs.reclaim)
    forget, aforget = twins(job_verbs.forget)
    signal, asignal = twins(signal_verbs.signal)
    signal_link, asignal_link = twins(link_verbs.signal_link)
    signal_links, asignal_links = twins(link_verbs.signal_links)
    revoke_signal_link, arevoke_signal_link = twins(link_verbs.revoke_signal_link)
    retry_all, aretry_all = twins(bulk_verbs.retry_all)
    purge, apurge = twins(bulk_verbs.purge)
    reschedule_all, areschedule_all = twins(bulk_verbs.reschedule_all)
    prioritize_all, aprioritize_all = twins(bulk_verbs.prioritize_all)
    move_all, amove_all = twins(bulk_verbs.move_all)

    _find_pages, _afind_pages = twins(bulk_verbs.find_pages)  # to count before confirming
    _retry_pages, _aretry_pages = twins(bulk_verbs.retry_pages)
    _purge_pages, _apurge_pages = twins(bulk_verbs.purge_pages)
    _change_pages, _achange_pages = twins(bulk_verbs.change_pages)

    events, aevents = event_verbs.events, event_verbs.aevents
    stream, astream = stream_verbs.stream, stream_verbs.astream

    # Flows

    flow, aflow = twins(flow_verbs.flow)
    flows, aflows = twins(flow_verbs.flows)
    flow_jobs, aflow_jobs = twins(flow_verbs.flow_jobs)
    cancel_flow, acancel_flow = twins(flow_verbs.cancel_flow)
    retry_flow, aretry_flow = twins(flow_verbs.retry_flow)

    # Queues

    queues, aqueues = twins(queue_verbs.queues)
    pause, apause = twins(queue_verbs.pause)
    resume, aresume = twins(queue_verbs.resume)
    keep, akeep = twins(queue_verbs.keep)
    limit, alimit = twins(limit_verbs.limit)
    limits, alimits = twins(limit_verbs.limits)
    lanes, alanes = twins(limit_verbs.lanes)
    _declare_queues, _adeclare_queues = twins(limit_verbs.declare_queues)
    _refresh_bounds, _arefresh_bounds = twins(limit_verbs.refresh_bounds)
    breakers, abreakers = twins(queue_verbs.breakers)
    close_breaker, aclose_breaker = twins(queue_verbs.close_breaker)

    # Schedules

    schedules, aschedules = twins(schedule_verbs.schedules)
    _schedule_page, _aschedule_page = twins(schedule_verbs.schedule_page)
    schedule_report, aschedule_report = twins(schedule_verbs.schedule_report)
    create_schedule, acreate_schedule = twins(schedule_verbs.create_schedule)
    pause_schedule, apause_schedule = twins(schedule_verbs.pause_schedule)
    resume_schedule, aresume_schedule = twins(schedule_verbs.resume_schedule)
    run_schedule, arun_schedule = twins(schedule_verbs.run_schedule)
    skip_schedule, askip_schedule = twins(schedule_verbs.skip_schedule)
    change_schedule, achange_schedule = twins(schedule_verbs.change_schedule)
    reset_schedule, areset_schedule = twins(schedule_verbs.reset_schedule)
    backfill_schedule, abackfill_schedule = twins(schedule_verbs.backfill_schedule)
    delete_schedule, adelete_schedule = twins(schedule_verbs.delete_schedule)

    # Workers

    workers, aworkers = twins(worker_verbs.workers)
    duties, aduties = twins(worker_verbs.duties)
    drain, adrain = twins(worker_verbs.drain)

    def worker(
        self,
        queues: Iterable[str] | str | None = None,
        concurrency: int | None = None,
        **settings: Unpack[WorkerOptions],
    ) -> Worker:
        """A worker for these queues (all, if none are named). `run()` it, `await arun()` it, or
        use it as an async context manager beside a web app. See `WorkerSettings` for the rest."""
        from ..worker.local import local_worker

        chosen = None if queues is None else check_names("queue", queues)
        if chosen == []:
            raise InvalidOption(option="queues", reason="must name a queue, or be left out for all")
        return local_worker(self, chosen, WorkerSettings.of(concurrency=concurrency, **settings))

    # Bridges

    outboxes, aoutboxes = twins(bridge_verbs.outboxes)
    sources, asources = twins(bridge_verbs.sources)

    # Maintenance

    def migrate(self) -> list[int]:
        """Migrate the tables to this release; returns the applied versions."""
        return self._parts.migrate()

    async def amigrate(self) -> list[int]:
        return await asyncio.to_thread(self.migrate)

    def move(
        self, url: str | None = None, schema: str | None = None, blobs: str | None = None
    ) -> None:
        """Store jobs at another address than in the code, for a command line or a test."""
        self._parts.move(url, schema, blobs)

    def close(self) -> None:
        self._parts.close()

    async def aclose(self) -> None:
        await self._parts.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<Outlast {self.store.address}>"
