"""Errors as pages; unauthenticated users get the login page."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from ...model.errors import OutlastError
from ..auth.principals import Principal
from ..problems import RequestRefused
from ..request import RequestContext
from ..route import HTML, PUBLIC, Route
from .layout import layout_context, page_address
from .links import Links
from .pages import HEADERS
from .templates import render

if TYPE_CHECKING:
    from ..components import Service

STATUSES_WITH_MENU = {403, 404, 409, 422}  # these pages have a menu if the user is known

LACKS_READ = "lacks-read"  # problem type: a login with a token without the scope read

ADVICE = {
    403: "This page needs a token with the right scope; an operator of this service can create one"
    " with outlast token create.",
    404: "It may have been pruned, or belong to another tenant. Use the menu to find other pages.",
    429: "Too many wrong tokens came from this address. Try again in a moment.",
    500: "The server's log has the details under this incident's id.",
    503: "The database is unavailable or busy. Running jobs continue; try again in a moment.",
}


def wants_page(request: Request, route: Route | None = None) -> bool:
    """Whether to respond to an error with a page: the caller is a browser."""
    if route is not None and route.is_page:
        return True
    path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    return HTML in request.headers.get("accept", "") and not path.startswith("/api/")


async def error_page(service: Service, request: Request, problem: Response) -> Response:
    """A problem as a page, with the same status and headers."""
    details: dict[str, object] = {"problems": None, "incident": None}
    details |= json.loads(bytes(problem.body))
    who = await _known(service, request) if problem.status_code in STATUSES_WITH_MENU else None
    context = await layout_context(service, request, who)
    asks = problem.status_code in {401, 429} or details["type"] == f"urn:outlast:{LACKS_READ}"
    template = "login.html" if asks else "refusal.html"
    advice = ADVICE.get(problem.status_code, "")
    facts = {"problem": details, "advice": advice, "after": page_address(request)}
    headers = {
        name: value
        for name, value in problem.headers.items()
        if name in {"retry-after", "allow", "www-authenticate"}
    }
    return HTMLResponse(
        render(template, {**context, **facts}), problem.status_code, {**HEADERS, **headers}
    )


async def login_page(call: RequestContext) -> Response:
    """The login page; users who are logged in are redirected."""
    if await _known(call.service, call.request) is not None:
        return RedirectResponse(Links.of(call.request)("/"), 303)
    context = await layout_context(call.service, call.request, None)
    facts = {"problem": None, "after": ""}
    return HTMLResponse(render("login.html", {**context, **facts}), 200, HEADERS)


async def _known(service: Service, request: Request) -> Principal | None:
    try:
        return await service.principals.identify(request)
    except (RequestRefused, OutlastError):
        return None


ROUTES = (Route("GET", "/login", PUBLIC, login_page, "Log in with a browser", media=(HTML,)),)
