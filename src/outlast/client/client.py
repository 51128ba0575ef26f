"""Outlast: define tasks, enqueue jobs, wait for them, work. Every sync verb has an a-twin.

The other verbs have files of their own: seeing, steering, flows, operators.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, cast, overload

from ..model.errors import InvalidOption
from ..model.flow import Enqueueable
from ..model.flow_builder import build_jobs
from ..model.job import Job, NewJob
from ..model.lifecycle import State
from ..model.options import check_name
from ..model.settings import RetentionSettings, StoreSettings, WorkerOptions, WorkerSettings
from ..model.task import Call, Registry
from ..ops.enqueue import enqueue, notify_queues
from ..ops.operation import Op
from ..store import open_store
from ..store.blobs.store import BlobStore
from ..store.caller.connection import arun_on, run_on
from ..store.notify_limiter import NotifyLimiter
from ..task_decorator import task
from ..tracing import enqueuing, traced, tracer
from .flows import Flows
from .jobs import Jobs
from .queues import Queues
from .result_waiter import ResultPoller
from .results import Results
from .workers import Workers

if TYPE_CHECKING:
    from ..task_decorator import TaskDecorator
    from ..webhooks.webhook import Webhook
    from ..worker.worker import Worker

T = TypeVar("T")


class Outlast(Jobs, Queues, Flows, Workers, Results):
    """A job system in a database.

    `url` is `sqlite:///file.db` or `postgresql://…`; without one, `$OUTLAST_URL`, else
    `sqlite:///outlast.db`. `schema` holds our tables; without one, `$OUTLAST_SCHEMA`, else
    `outlast`. Nothing is opened before it is needed; the first enqueue or worker
    creates missing tables.

    `blobs` keeps arguments and results that are too large for a row: `file:///a/directory` or a
    `BlobStore`; without one, `$OUTLAST_BLOBS`, else they are refused.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        schema: str | None = None,
        settings: StoreSettings | None = None,
        retention: RetentionSettings | None = None,
        blobs: str | BlobStore | None = None,
    ) -> None:
        self.store = open_store(url, schema, settings)
        self._use_blobs(blobs or os.environ.get("OUTLAST_BLOBS") or None)
        self.retention = retention or RetentionSettings.of()
        self.registry = Registry()
        self.webhooks: dict[str, Webhook] = {}
        self._notify_limiter = NotifyLimiter()
        self._tx_notify = NotifyLimiter()  # apart: theirs are heard when they commit, if they do
        self._result_poller = ResultPoller(self.store)

    # Define

    task: TaskDecorator = cast(Any, task)

    def webhook(
        self,
        name: str,
        *,
        url: str,
        secret: str | Iterable[str],
        timeout: float = 10.0,
        events: Sequence[str] = ("succeeded", "dead", "cancelled"),
        **options: Any,
    ) -> Webhook:
        """Register a server that can be told, by a signed POST, when jobs end: give it to the
        `tell` of tasks and jobs. Each delivery is a job of the task of this name. With several
        secrets, each message is signed with each of them.

        Options: retry (for about a day), queue (`webhooks`), tenant (then only its jobs may name
        it from outside), priority, max_crashes, expires, on_dead, on_cancel.
        """
        from ..webhooks.webhook import Endpoint, define

        to = Endpoint.of(name, url, secret, timeout)
        self.webhooks[name] = made = define(self, to, events, options)
        return made

    # Enqueue

    @overload
    def enqueue(self, *calls: Call[T], conn: object = None) -> list[Job[T]]: ...
    @overload
    def enqueue(self, *calls: Enqueueable, conn: object = None) -> list[Job]: ...

    def enqueue(self, *calls: Enqueueable, conn: Any = None) -> list[Job]:
        """Enqueue calls, chains, groups and flows, all or none; one job for each call, in order."""
        jobs = build_jobs(calls, limit=self._max_args_bytes)
        if (recorder := tracer()) is None:
            return self._enqueue_rows(traced(jobs), conn)
        with enqueuing(recorder, jobs) as sent:
            return self._enqueue_rows(sent, conn)

    def _enqueue_rows(self, jobs: list[NewJob], conn: Any) -> list[Job]:
        if conn is not None:
            self.store.ready_beside_caller()
        if self.blobs is not None:
            jobs = self.blobs.put_arguments(jobs)
        if conn is not None:
            return run_on(conn, self.store, self._enqueue_and_notify(jobs))
        made = self.store.run(enqueue, jobs)
        self._notify(self._queues_to_notify(made, self._notify_limiter))
        return made

    @overload
    async def aenqueue(self, *calls: Call[T], conn: object = None) -> list[Job[T]]: ...
    @overload
    async def aenqueue(self, *calls: Enqueueable, conn: object = None) -> list[Job]: ...

    async def aenqueue(self, *calls: Enqueueable, conn: Any = None) -> list[Job]:
        return await self._aenqueue_traced(build_jobs(calls, limit=self._max_args_bytes), conn)

    async def _aenqueue_traced(self, jobs: list[NewJob], conn: Any = None) -> list[Job]:
        if (recorder := tracer()) is None:
            return await self._aenqueue_rows(traced(jobs), conn)
        with enqueuing(recorder, jobs) as sent:
            return await self._aenqueue_rows(sent, conn)

    async def _aenqueue_rows(self, jobs: list[NewJob], conn: Any = None) -> list[Job]:
        if conn is not None:
            await self.store.aready_beside_caller()
        if self.blobs is not None and self.blobs.any_large(jobs):
            jobs = await asyncio.to_thread(self.blobs.put_arguments, jobs)
        if conn is not None:
            return await arun_on(conn, self.store, self._enqueue_and_notify(jobs))
        made = await self.store.arun(enqueue, jobs)
        await self._anotify(self._queues_to_notify(made, self._notify_limiter))
        return made

    def _enqueue_and_notify(self, jobs: list[NewJob]) -> Op[list[Job]]:
        made = yield from enqueue(jobs, ours=False)
        if queues := self._queues_to_notify(made, self._tx_notify):
            yield from notify_queues(self.store.channel, queues)
        return made

    def _queues_to_notify(self, jobs: list[Job], limiter: NotifyLimiter) -> list[str]:
        if not self.store.can_notify:
            return []
        return limiter.due({job.queue for job in jobs if job.state is State.READY})

    # Work

    def worker(
        self,
        queues: Iterable[str] | str | None = None,
        concurrency: int | None = None,
        **settings: Unpack[WorkerOptions],
    ) -> Worker:
        """A worker for these queues (all, if none are named). `run()` it, `await arun()` it, or
        use it as an async context manager beside a web app. See `WorkerSettings` for the rest."""
        from ..worker.local import local_worker

        names = [queues] if isinstance(queues, str) else queues
        chosen = None if names is None else [check_name("queue", name) for name in names]
        if chosen == []:
            raise InvalidOption(option="queues", reason="must name a queue, or be left out for all")
        return local_worker(self, chosen, WorkerSettings.of(concurrency=concurrency, **settings))

    # Keep house

    def migrate(self) -> list[int]:
        """Bring the tables up to this release; returns the versions that were applied."""
        applied = self.store.migrate()
        if self.blobs is not None:
            _ = self.blobs.namespace  # which could not be made inside a caller's transaction
        return applied

    async def amigrate(self) -> list[int]:
        return await asyncio.to_thread(self.migrate)

    def move(
        self, url: str | None = None, schema: str | None = None, blobs: str | None = None
    ) -> None:
        """Keep jobs elsewhere than the code says, as a command line or a test may ask."""
        here, kept_in = self.store.address, self.blobs.location if self.blobs else None
        self.close()
        self.store = open_store(url or here.url, schema or here.schema, self.store.settings)
        self._use_blobs(blobs or kept_in)
        self._result_poller = ResultPoller(self.store)

    def close(self) -> None:
        self._result_poller.close()
        self.store.close()

    async def aclose(self) -> None:
        self._result_poller.close()
        await self.store.aclose()

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
