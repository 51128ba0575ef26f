"""Pages: a template, its values, and the layout around them."""

from __future__ import annotations

from markupsafe import Markup
from pydantic import BaseModel
from starlette.responses import HTMLResponse

from ...model.api_token import Scope
from ..request import RequestContext
from ..route import HTML, EndpointFunction, Route
from . import flashes
from .layout import layout_context
from .templates import render

# With "no-referrer", a browser would send no origin with the dashboard's own forms.
HEADERS = {"referrer-policy": "same-origin", "vary": "Cookie"}


async def render_page(
    call: RequestContext, template: str, status: int = 200, **facts: object
) -> HTMLResponse:
    """Render a page, with the flash message of the previous action."""
    context = await layout_context(call.service, call.request, call.who)
    context["flash"] = await flashes.read_flash(call.service, call.request)
    response = HTMLResponse(render(template, {**context, **facts}), status, HEADERS)
    flashes.clear_flash(call.request, response)
    return response


async def render_part(call: RequestContext, template: str, **facts: object) -> Markup:
    """Render a part of a page, to be inserted into an open one."""
    context = await layout_context(call.service, call.request, call.who)
    return Markup(render(template, {**context, **facts}))  # noqa: S704 - it is escaped


def page_route(
    path: str,
    endpoint: EndpointFunction,
    summary: str,
    *,
    everyone: bool = False,
    query: type[BaseModel] | None = None,
    scope: Scope = Scope.READ,
) -> Route:
    """The route of a page."""
    return Route(
        "GET", path, scope, endpoint, summary, query=query, everyone=everyone, media=(HTML,)
    )


def action_route(
    path: str, endpoint: EndpointFunction, summary: str, *, everyone: bool = False
) -> Route:
    """The route of a form that acts, and redirects the browser to the result."""
    return Route(
        "POST", path, Scope.ADMIN, endpoint, summary, status=303, everyone=everyone, media=(HTML,)
    )
