"""Outlast in an ASGI app: Starlette, Litestar, and FastAPI (see also `.fastapi`).

events = JobEvents(ol)
app = Litestar(…, lifespan=[lifespan(ol, events=events, concurrency=8)])

lifespan            tables, an embedded worker and event streams, for the life of the app
JobEvents           server-sent events of a job or a flow, from an endpoint of the app
SessionMiddleware   a session for each request, joined by every enqueue
"""

from __future__ import annotations

import asyncio
import math
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass
from typing import Any, Protocol, Self, Unpack

from starlette.responses import Response

from ..client.client import Outlast
from ..client.events import event_filter
from ..client.flows import flow_id
from ..client.verb_arguments import Names, job_id
from ..model.options import check_name
from ..model.settings import ServiceSettings, WorkerOptions
from ..service.auth.principals import Principal
from ..service.background import PartRunner
from ..service.events.broadcaster import Broadcaster
from ..service.events.opening import media_for, open_flow_stream, open_job_stream
from ..service.events.stream import EventStream
from ..service.problems import problem_response
from ..worker.outage_log import OutageLog

NO_CONTENT = 204  # a browser does not reconnect


class HasHeaders(Protocol):
    """A request of Starlette, FastAPI or Litestar."""

    @property
    def headers(self) -> Mapping[str, str]: ...


@dataclass(frozen=True, slots=True)
class _EndpointCaller:
    """The caller of a stream in an app that has authorized the request."""

    broadcaster: Broadcaster
    who: Principal
    longest_s: float = math.inf

    @asynccontextmanager
    async def while_allowed(self) -> AsyncIterator[asyncio.Event]:
        yield asyncio.Event()


class JobEvents:
    """Server-sent events of jobs and flows, for endpoints of your own app:

        @app.get("/reports/{id}/events")
        async def follow(id: str, request: Request):
            return await events.job(request, id)

    One reader of the database serves all streams of a process. It starts with the first stream, and
    ends with `lifespan(…, events=events)`. Limits are those of `ServiceSettings`.
    """

    def __init__(self, ol: Outlast, settings: ServiceSettings | None = None) -> None:
        self._broadcaster = Broadcaster(ol.store, settings)
        self._runner = PartRunner(ol.store, [self._broadcaster], OutageLog())
        self._tasks: list[asyncio.Task[None]] = []

    async def job(
        self, request: HasHeaders, id: str, *, kinds: Names = None, tenant: str | None = None
    ) -> Response:
        """A response with the events of a job until its end, from its first event or after the
        request's `Last-Event-ID`. With `tenant`, the job must belong to it. The endpoint authorizes
        the request; an unknown job is 404."""
        return await self._respond(request, open_job_stream, job_id, id, kinds, tenant)

    async def flow(
        self, request: HasHeaders, id: str, *, kinds: Names = None, tenant: str | None = None
    ) -> Response:
        """A response with the events of a flow. `kinds=["started", "succeeded", …]` adds starts and
        successes."""
        return await self._respond(request, open_flow_stream, flow_id, id, kinds, tenant)

    @property
    def streams(self) -> int:
        """Open streams of this process."""
        return self._broadcaster.subscribers

    async def _respond(
        self,
        request: HasHeaders,
        opening: Callable[..., Awaitable[EventStream | None]],
        normal: Callable[[str], str],
        id: str,
        kinds: Names,
        tenant: str | None,
    ) -> Response:
        wanted = event_filter(kinds, None, None, tenant, None).kinds
        own = None if tenant is None else check_name("tenant", tenant)
        caller = _EndpointCaller(self._broadcaster, Principal("an endpoint", frozenset(), own))
        headers = request.headers
        media, after = media_for(headers.get("accept", "")), headers.get("last-event-id")
        self.start()
        try:
            stream = await opening(caller, normal(id), after, wanted, media)
        except Exception as error:
            return problem_response(error)
        return Response(status_code=NO_CONTENT) if stream is None else stream

    def start(self) -> None:
        """Start the reader, once for each event loop."""
        loop = asyncio.get_running_loop()
        if not self._tasks or self._tasks[0].get_loop() is not loop:
            self._broadcaster.open()
            self._tasks = self._runner.start()

    def close(self) -> None:
        """End all streams; clients reconnect elsewhere. Call it when the app begins to stop:
        servers wait for open responses."""
        self._broadcaster.close()

    async def stop(self) -> None:
        """Stop the reader."""
        self.close()
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()


def lifespan(
    ol: Outlast,
    *,
    events: JobEvents | None = None,
    worker: bool = True,
    queues: Iterable[str] | str | None = None,
    concurrency: int | None = None,
    **options: Unpack[WorkerOptions],
) -> Callable[[Any], AbstractAsyncContextManager[None]]:
    """A lifespan: create or upgrade the tables, run a worker beside the app (with the options of
    `ol.worker`), drain it at the end, and close `ol`. On SIGTERM and SIGINT the
    streams of `events` end at once, so that the server need not wait for them."""

    @asynccontextmanager
    async def running(app: object) -> AsyncIterator[None]:
        async with AsyncExitStack() as held:
            held.push_async_callback(ol.aclose)
            await ol.amigrate()
            if events is not None:
                held.enter_context(on_stop_signal(events.close))
                await held.enter_async_context(events)
            if worker:
                await held.enter_async_context(ol.worker(queues, concurrency, **options))
            yield

    return running


@contextmanager
def on_stop_signal(action: Callable[[], None]) -> Iterator[None]:
    """Call a function on the event loop at SIGTERM and SIGINT, before the server's own handlers.
    Outside of the main thread, which has the signal handlers, nothing is changed."""
    handled = dict[int, Any]()
    loop = asyncio.get_running_loop()

    def handle(number: int, frame: Any) -> None:
        loop.call_soon_threadsafe(action)
        handled[number](number, frame)

    if threading.current_thread() is threading.main_thread():
        for stop in (signal.SIGTERM, signal.SIGINT):
            if callable(before := signal.getsignal(stop)):
                handled[stop] = before
                signal.signal(stop, handle)
    try:
        yield
    finally:
        for number, before in handled.items():
            if signal.getsignal(number) is handle:
                signal.signal(number, before)


class SessionMiddleware:
    """ASGI middleware: an asyncio session of SQLAlchemy or SQLModel for each request, in
    `request.state.session`, joined by every enqueue without `conn`. The request commits it."""

    def __init__(
        self, app: Any, *, ol: Outlast, sessions: Callable[[], AbstractAsyncContextManager[Any]]
    ) -> None:
        self._app, self._ol, self._sessions = app, ol, sessions

    # Any: each framework has types of its own for these parameters.
    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        async with self._sessions() as session:
            scope.setdefault("state", {})["session"] = session
            with self._ol.bind(session):
                await self._app(scope, receive, send)
