"""What a page is: a template, some facts, and the frame around them."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup
from pydantic import BaseModel
from starlette.responses import HTMLResponse

from ...model.tokens import Scope
from ..calls import Call
from ..route import HTML, Endpoint, Route
from . import flashes
from .frame import frame
from .templates import rendered

# With none at all, a browser would hide the origin of our own forms from us.
HEADERS = {"referrer-policy": "same-origin", "vary": "Cookie"}


async def page(call: Call, template: str, status: int = 200, **facts: Any) -> HTMLResponse:
    """A whole page. What an action before it did is told on it, once."""
    around = await frame(call.service, call.request, call.who)
    around["flash"] = await flashes.told(call.service, call.request)
    made = HTMLResponse(rendered(template, {**around, **facts}), status, HEADERS)
    flashes.forget(call.request, made)
    return made


async def part(call: Call, template: str, **facts: Any) -> Markup:
    """A part of a page, to be put into one that is open."""
    around = await frame(call.service, call.request, call.who)
    return Markup(rendered(template, {**around, **facts}))  # noqa: S704 - it has escaped all


def seen(
    path: str,
    endpoint: Endpoint,
    summary: str,
    *,
    everyone: bool = False,
    query: type[BaseModel] | None = None,
    scope: Scope = Scope.READ,
) -> Route:
    """The route of a page that is looked at."""
    return Route(
        "GET", path, scope, endpoint, summary, query=query, everyone=everyone, media=(HTML,)
    )


def acts(path: str, endpoint: Endpoint, summary: str, *, everyone: bool = False) -> Route:
    """The route of a form that does something, and sends the browser on to what it did."""
    return Route(
        "POST", path, Scope.ADMIN, endpoint, summary, status=303, everyone=everyone, media=(HTML,)
    )
