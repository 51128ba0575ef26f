"""The services of several databases in one app: each under its name, and one page over all.

/            every database with its counts, or the time since it is unreachable
/NAME/…      the service of that database, with its own tokens and sessions
/livez       whether this process is alive, regardless of the databases
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount
from starlette.routing import Route as Path
from starlette.types import Receive, Scope, Send

from ..client.databases import Databases
from ..model.settings import ServiceSettings
from .app import ServiceApp, service
from .components import Service
from .dashboard.databases import FILES, DatabaseStatus, databases_page
from .dashboard.layout import DATABASES
from .dashboard.links import Links
from .dashboard.static_files import file_response
from .problems import RequestRefused, Unauthorised, problem_response
from .reachability import Reachability
from .security import AmbiguityGuard, SecurityHeaders


def services(databases: Databases, settings: ServiceSettings | None = None) -> DatabasesApp:
    """The services of several databases, as an ASGI app: run it by itself, or mount it."""
    chosen = settings or ServiceSettings.of()
    return DatabasesApp({name: service(ol, chosen) for name, ol in databases.by_name.items()})


class DatabasesApp:
    """The app that `services` returns; `by_name` has the app of each database. Its `lifespan` is
    like that of a `ServiceApp`."""

    def __init__(self, by_name: Mapping[str, ServiceApp]) -> None:
        self.by_name = by_name
        self._reach: dict[str, Reachability] = {}
        self._checks: list[asyncio.Task[None]] = []
        starlette = Starlette(
            routes=[
                Path("/", self._overview),
                Path("/livez", _alive),
                Path(f"{FILES}/static/{{name}}", _static_file),
                *(Mount(f"/{name}", app) for name, app in by_name.items()),
            ],
            lifespan=self.lifespan,
        )
        self._app = SecurityHeaders(AmbiguityGuard(starlette))

    @asynccontextmanager
    async def lifespan(self, app: object) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for each in self.by_name.values():
                await stack.enter_async_context(each.lifespan(app))
            self._start()
            stack.push_async_callback(self._stop)
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app({**scope, DATABASES: scope.get("root_path", "")}, receive, send)

    @property
    def parts(self) -> Sequence[Service]:
        """The services in this app."""
        return [app.service for app in self.by_name.values()]

    def close_streams(self) -> None:
        """At shutdown, end the streams of all services."""
        for one in self.parts:
            one.close_streams()

    async def _overview(self, request: Request) -> Response:
        if request.query_params.get("database", "") in self.by_name:
            login = Links.of(request)("/", request.query_params["database"], "login")
            return RedirectResponse(login, 303)
        if "authorization" in request.headers:
            detail = "this page is for browsers: programs use /NAME/api/v1/counts of each database"
            return problem_response(Unauthorised(detail))
        self._start()
        found = await asyncio.gather(*(self._status(name, request) for name in self.by_name))
        return databases_page(request, found)

    async def _status(self, name: str, request: Request) -> DatabaseStatus:
        since = await self._reach[name].unreachable_since()
        if since is not None:
            return DatabaseStatus(name, unreachable_since=since)
        prefix = f"{request.scope.get('root_path', '')}/{name}"
        mounted = Request({**request.scope, "root_path": prefix})  # with the cookies of that mount
        return await DatabaseStatus.read(name, self.by_name[name].service, mounted)

    def _start(self) -> None:
        """Start the services; idempotent, like `Service.start`."""
        loop = asyncio.get_running_loop()
        if self._checks and self._checks[0].get_loop() is loop:
            return
        self._reach = {
            name: Reachability(name, app.service.ol.store) for name, app in self.by_name.items()
        }
        self._checks = [loop.create_task(one.run()) for one in self._reach.values()]

    async def _stop(self) -> None:
        checks, self._checks = self._checks, []
        for check in checks:
            check.cancel()
        await asyncio.gather(*checks, return_exceptions=True)


async def _alive(request: Request) -> Response:
    return PlainTextResponse("ok\n", headers={"cache-control": "no-store"})


async def _static_file(request: Request) -> Response:
    try:
        return file_response(request)
    except RequestRefused as refused:
        return problem_response(refused)
