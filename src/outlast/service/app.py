"""The ASGI app, built from the route table."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as Path
from starlette.types import Receive, Scope, Send

from ..client.client import Outlast
from ..model.settings import ServiceSettings
from . import problems
from .auth.principals import ANONYMOUS, Principal
from .components import Service
from .dashboard.error_pages import error_page, wants_page
from .json_response import JsonResponse
from .parsing import body_of, query_of
from .problems import Forbidden, MethodNotAllowed, NotFound
from .request import RequestContext
from .route import PUBLIC, Route
from .route_table import ROUTES, enabled_routes
from .security import AmbiguityGuard, SecurityHeaders, refuse_foreign_origin


def service(ol: Outlast, settings: ServiceSettings | None = None) -> ServiceApp:
    """The service of a job system, as an ASGI app: run it by itself, or mount it in another one."""
    chosen = settings or ServiceSettings.of()
    parts = Service(ol, chosen)
    parts.hooks.check()
    return ServiceApp(parts, enabled_routes(chosen))


class ServiceApp:
    """The app that `service` returns. An app that mounts it should run its `lifespan`, if possible;
    otherwise the background parts start with the first request."""

    def __init__(self, service: Service, routes: Sequence[Route] = ROUTES) -> None:
        self.service = service
        self.routes = routes
        starlette = Starlette(
            routes=[
                Path(path, Dispatch(service, by_method))
                for path, by_method in _by_path(routes).items()
            ],
            lifespan=self.lifespan,
            exception_handlers={HTTPException: self._unrouted},
        )
        starlette.router.redirect_slashes = False
        self._app = SecurityHeaders(AmbiguityGuard(starlette))

    @property
    def parts(self) -> Sequence[Service]:
        """The services in this app."""
        return [self.service]

    @asynccontextmanager
    async def lifespan(self, app: object) -> AsyncIterator[None]:
        self.service.start()
        try:
            yield
        finally:
            await self.service.stop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    async def _unrouted(self, request: Request, error: Exception) -> Response:
        detail = "no such path: see /api/v1/openapi.json"
        return await error_response(self.service, request, NotFound(detail))


class Dispatch:
    """The endpoint of one path: finds the route by the method, and authorizes the caller. It is an
    ASGI app, so that Starlette does not restrict the methods."""

    def __init__(self, service: Service, by_method: dict[str, Route]) -> None:
        self._service = service
        self._by_method = by_method

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        route = self._by_method.get("GET" if request.method == "HEAD" else request.method)
        try:
            response = await self._respond(request, route)
        except Exception as error:
            response = await error_response(self._service, request, error, route)
        await response(scope, receive, send)

    async def _respond(self, request: Request, route: Route | None) -> Response:
        if route is None:
            allowed = ", ".join(sorted(self._by_method))
            raise MethodNotAllowed(f"this path allows {allowed}", {"allow": allowed})
        self._service.start()
        who = ANONYMOUS if route.scope is PUBLIC else await self._authorise(request, route)
        body, query, size = None, None, 0
        if route.query is not None:
            query = query_of(request, route.query)
        if route.request is not None:
            body, size = await body_of(request, route.request, self._service.settings.max_body)
        result = await route.endpoint(
            RequestContext(self._service, who, request, route, body, query, size)
        )
        return _response(result, route.status)

    async def _authorise(self, request: Request, route: Route) -> Principal:
        who = await self._service.principals.identify(request)
        if route.changes and (who.by_cookie or who.token is None):
            refuse_foreign_origin(request, required=who.by_cookie)
        for scope in (route.scope, route.also):
            if not who.has_scope(scope):
                raise Forbidden(f"this token lacks the scope {scope}")
        if route.everyone and who.tenant is not None:
            raise Forbidden("this concerns all tenants: use a token that is not restricted to one")
        return who


def _response(result: object, status: int) -> Response:
    if isinstance(result, Response):
        return result
    if result is None:
        return Response(status_code=204)
    if isinstance(result, BaseModel):
        result = result.model_dump(mode="json")
    return JsonResponse(result, status)


def _by_path(routes: Sequence[Route]) -> dict[str, dict[str, Route]]:
    found: dict[str, dict[str, Route]] = {}
    for route in routes:
        if route.method in found.setdefault(route.path, {}):
            raise ValueError(f"{route.method} {route.path} is in the route table twice")
        found[route.path][route.method] = route
    # Starlette takes the first matching path: literal segments come before parameters.
    return dict(sorted(found.items(), key=lambda one: "{" in one[0]))


async def error_response(
    service: Service, request: Request, error: Exception, route: Route | None = None
) -> Response:
    """The response to an error: a page for browsers, problem+json for programs."""
    problem = problems.problem_response(error)
    if not wants_page(request, route):
        return problem
    try:
        return await error_page(service, request, problem)
    except Exception as another:  # a page that fails to render must not hide the first error
        return problems.problem_response(another)
