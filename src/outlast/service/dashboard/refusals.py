"""What goes wrong, as a page; who is not known yet is asked for a token."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from ...model.errors import OutlastError
from ..calls import Call
from ..principals import Principal
from ..problems import Refused
from ..route import HTML, PUBLIC, Route
from .frame import address_of, frame
from .links import Links
from .pages import HEADERS
from .templates import rendered

if TYPE_CHECKING:
    from ..state import Service

KNOWN_ANYWAY = {403, 404, 409, 422}  # whoever gets one of these may have a menu to go on with

LACKS_READ = "lacks-read"  # the kind of problem of a login with a token that opens no page

ADVICE = {
    403: "A token with the scope it needs opens this page; whoever runs this service makes one with"
    " outlast token create.",
    404: "It may have been pruned, or belong to somebody else. What is here can be found in the"
    " menu.",
    429: "Wrong tokens came from this address. It may try again in a moment.",
    500: "The log of the server says what happened, under this incident's name.",
    503: "The database is away, or busy. Jobs that run go on, and this page comes back with it.",
}


def wants_page(request: Request, route: Route | None = None) -> bool:
    """Whether a refusal is read by a person in a browser."""
    if route is not None and route.is_page:
        return True
    path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    return HTML in request.headers.get("accept", "") and not path.startswith("/api/")


async def refusal(service: Service, request: Request, problem: Response) -> Response:
    """A problem as a page, with the same status and headers."""
    told: dict[str, Any] = {"problems": None, "incident": None}
    told |= json.loads(bytes(problem.body))
    who = await _known(service, request) if problem.status_code in KNOWN_ANYWAY else None
    around = await frame(service, request, who)
    asks = problem.status_code in {401, 429} or told["type"] == f"urn:outlast:{LACKS_READ}"
    template = "login.html" if asks else "refusal.html"
    advice = ADVICE.get(problem.status_code, "")
    facts = {"problem": told, "advice": advice, "after": address_of(request)}
    kept = {
        name: value
        for name, value in problem.headers.items()
        if name in {"retry-after", "allow", "www-authenticate"}
    }
    return HTMLResponse(
        rendered(template, {**around, **facts}), problem.status_code, {**HEADERS, **kept}
    )


async def login_page(call: Call) -> Response:
    """Where one logs in; whoever is known already is sent on."""
    if await _known(call.service, call.request) is not None:
        return RedirectResponse(Links.of(call.request)("/"), 303)
    around = await frame(call.service, call.request, None)
    facts = {"problem": None, "after": ""}
    return HTMLResponse(rendered("login.html", {**around, **facts}), 200, HEADERS)


async def _known(service: Service, request: Request) -> Principal | None:
    try:
        return await service.principals.identify(request)
    except (Refused, OutlastError):
        return None


ROUTES = (Route("GET", "/login", PUBLIC, login_page, "Where a browser logs in", media=(HTML,)),)
