"""Outlast: define tasks, enqueue jobs, wait for them, work. Every sync verb has an a-twin.

The other verbs have files of their own: seeing, steering, flows, operators.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, cast, overload

from .flows import FlowVerbs
from .model.batch import batch_of
from .model.breaker import Breaker
from .model.errors import InvalidOption
from .model.flow import Enqueueable
from .model.job import Job, NewJob
from .model.layout import new_jobs
from .model.lifecycle import State
from .model.options import Options, check_name
from .model.retry import Retry
from .model.settings import RetentionSettings, StoreSettings, WorkerSettings
from .model.task import Definition, Registry
from .model.task_function import task_name
from .operators import OperatorVerbs
from .ops.enqueue import enqueue, wake
from .ops.statement import Op
from .results import ResultVerbs
from .seeing import SeeingVerbs
from .steering import SteeringVerbs
from .store import open_store
from .store.blobs import BlobStore
from .store.callers import arun_on, run_on
from .store.wakes import Wakes
from .tasks import Task
from .tracing import enqueuing, traced, tracer
from .waiting import Waiting

if TYPE_CHECKING:
    from .bridge.webhook import Webhook
    from .worker.worker import Worker

DEFAULT_BREAKER = Breaker()
TASK_OPTIONS = ("name", "isolated", "batch", "wait", "breaker")  # of a task, never of one job

P = ParamSpec("P")
R = TypeVar("R")


class Outlast(SeeingVerbs, SteeringVerbs, FlowVerbs, OperatorVerbs, ResultVerbs):
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
        self._keep_blobs(blobs or os.environ.get("OUTLAST_BLOBS") or None)
        self.retention = retention or RetentionSettings.of()
        self.registry = Registry()
        self.webhooks: dict[str, Webhook] = {}
        self._wakes = Wakes()
        self._callers_wakes = Wakes()  # apart: theirs are heard when they commit, if they do
        self._waiting = Waiting(self.store)

    # Define

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        retry: Retry | None = None,
        isolated: bool = False,
        batch: int | None = None,
        wait: float | None = None,
        breaker: Breaker | None = DEFAULT_BREAKER,
        **options: Any,
    ) -> Callable[[Callable[P, R]], Task[P, R]]: ...

    def task(  # noqa: PLR0913 - as the contract has it
        self,
        function: Callable[P, R] | None = None,
        /,
        *,
        name: str | None = None,
        retry: Retry | None = None,
        isolated: bool = False,
        batch: int | None = None,
        wait: float | None = None,
        breaker: Breaker | None = DEFAULT_BREAKER,
        **options: Any,
    ) -> Task[P, R] | Callable[[Callable[P, R]], Task[P, R]]:
        """Register a function as a task. Its name is the function's, unless another is given; jobs
        are found by that name, so a function may move to another module.

        With `batch`, the function takes a list, of which each job brings one item: it is called
        with up to so many, or with those that came within `wait` seconds.

        `breaker` says when its calls stop because what it depends on is away; None: never.

        Options: queue, priority, timeout, max_attempts, max_crashes, expires, tenant, on_success,
        on_dead, on_cancel.
        """

        said, gathered = Options.of(options, also=TASK_OPTIONS), batch_of(batch, wait)

        def register(function: Callable[P, R]) -> Task[P, R]:
            definition = Definition(
                name=task_name(function) if name is None else name,
                function=function,
                retry=Retry() if retry is None else retry,
                options=said,
                isolated=isolated,
                context_type=_context_type(batch is not None),
                batch=gathered,
                breaker=breaker,
            )
            self.registry.add(definition)
            return Task(self, definition)

        return register(function) if function is not None else register

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
        from .bridge.webhook import Endpoint, define

        to = Endpoint.of(name, url, secret, timeout)
        self.webhooks[name] = made = define(self, to, events, options)
        return made

    # Enqueue

    def enqueue(self, *calls: Enqueueable, conn: Any = None) -> list[Job]:
        """Enqueue calls, chains, groups and flows, all or none; one job for each call, in order."""
        jobs = new_jobs(calls, limit=self._largest)
        if (recorder := tracer()) is None:
            return self._put(traced(jobs), conn)
        with enqueuing(recorder, jobs) as sent:
            return self._put(sent, conn)

    def _put(self, jobs: list[NewJob], conn: Any) -> list[Job]:
        if conn is not None:
            self.store.ready_beside_caller()
        if self.blobs is not None:
            jobs = self.blobs.put_arguments(jobs)
        if conn is not None:
            return run_on(conn, self.store, self._enqueue_and_wake(jobs))
        made = self.store.run(enqueue, jobs)
        self._wake(self._to_wake(made, self._wakes))
        return made

    async def aenqueue(self, *calls: Enqueueable, conn: Any = None) -> list[Job]:
        return await self._asend(new_jobs(calls, limit=self._largest), conn)

    async def _asend(self, jobs: list[NewJob], conn: Any = None) -> list[Job]:
        if (recorder := tracer()) is None:
            return await self._aput(traced(jobs), conn)
        with enqueuing(recorder, jobs) as sent:
            return await self._aput(sent, conn)

    async def _aput(self, jobs: list[NewJob], conn: Any = None) -> list[Job]:
        if conn is not None:
            await self.store.aready_beside_caller()
        if self.blobs is not None and self.blobs.any_large(jobs):
            jobs = await asyncio.to_thread(self.blobs.put_arguments, jobs)
        if conn is not None:
            return await arun_on(conn, self.store, self._enqueue_and_wake(jobs))
        made = await self.store.arun(enqueue, jobs)
        await self._awake(self._to_wake(made, self._wakes))
        return made

    def _enqueue_and_wake(self, jobs: list[NewJob]) -> Op[list[Job]]:
        made = yield from enqueue(jobs, ours=False)
        if queues := self._to_wake(made, self._callers_wakes):
            yield from wake(self.store.channel, queues)
        return made

    def _to_wake(self, jobs: list[Job], wakes: Wakes) -> list[str]:
        if not self.store.wakes:
            return []
        return wakes.due({job.queue for job in jobs if job.state is State.READY})

    # Work

    def worker(
        self,
        queues: Iterable[str] | str | None = None,
        concurrency: int | None = None,
        **settings: Any,
    ) -> Worker:
        """A worker for these queues (all, if none are named). `run()` it, `await arun()` it, or
        use it as an async context manager beside a web app. See `WorkerSettings` for the rest."""
        from .worker.worker import Worker

        names = [queues] if isinstance(queues, str) else queues
        chosen = None if names is None else [check_name("queue", name) for name in names]
        if chosen == []:
            raise InvalidOption(option="queues", reason="must name a queue, or be left out for all")
        return Worker(
            self,
            queues=chosen,
            settings=WorkerSettings.of(concurrency=concurrency, **settings),
        )

    # Keep house

    def migrate(self) -> list[int]:
        """Bring the tables up to this release; returns the versions that were applied."""
        applied = self.store.migrate()
        if self.blobs is not None:
            _ = self.blobs.place  # which could not be made inside a caller's transaction
        return applied

    async def amigrate(self) -> list[int]:
        return await asyncio.to_thread(self.migrate)

    def move(
        self, url: str | None = None, schema: str | None = None, blobs: str | None = None
    ) -> None:
        """Keep jobs elsewhere than the code says, as a command line or a test may ask."""
        here, kept_in = self.store.address, self.blobs.kept_in if self.blobs else None
        self.close()
        self.store = open_store(url or here.url, schema or here.schema, self.store.settings)
        self._keep_blobs(blobs or kept_in)
        self._waiting = Waiting(self.store)

    def close(self) -> None:
        self._waiting.close()
        self.store.close()

    async def aclose(self) -> None:
        self._waiting.close()
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


def _context_type(batch: bool) -> type:
    from .worker.batch_context import BatchContext
    from .worker.context import Context

    return cast(type, BatchContext if batch else Context)
