"""Actions of the dashboard: each is confirmed once, recorded with the caller's name, and reported.

    GET  /queues/pause?queue=mail    the confirmation page (a script may show it in a dialog)
    POST /queues/pause               acts, and redirects the browser: see `redirect_done`

The confirmation's form carries everything that the action needs, and posts to the same path. Both
requests are validated alike: the action does not rely on the confirmation page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from pydantic import BaseModel
from starlette.responses import RedirectResponse, Response

from ..parsing import form_of, media_type_of
from ..problems import UnsupportedMediaType
from ..request import RequestContext
from . import flashes
from .flashes import Flash
from .links import Links
from .pages import render_page

FORM = "application/x-www-form-urlencoded"
MAX_FORM_BYTES = 100_000

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class FormField:
    """A text field of the form."""

    name: str
    label: str
    value: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Confirmation:
    """A confirmation: `consequence` describes the effect; the form posts to `path`."""

    title: str
    consequence: str
    button: str
    path: str
    back: str  # the path of the previous page
    fields: Mapping[str, str] = field(default_factory=dict)
    danger: bool = False  # it cannot be undone
    blank: FormField | None = None


async def confirmation_page(call: RequestContext, confirmation: Confirmation) -> Response:
    return await render_page(call, "question.html", question=confirmation)


async def submitted_form(call: RequestContext, model: type[M]) -> M:
    """The validated form of a request."""
    if media_type_of(call.request) != FORM:
        raise UnsupportedMediaType(f"send a form ({FORM})")
    return await form_of(call.request, model, MAX_FORM_BYTES)


async def redirect_done(
    call: RequestContext, text: str, path: str = "/", *parts: object, **query: object
) -> Response:
    """Redirect the browser to a page that reports the result."""
    return await _redirect(call, Flash("done", text), Links.of(call.request)(path, *parts, **query))


async def redirect_refused(
    call: RequestContext, text: str, path: str = "/", *parts: object, **query: object
) -> Response:
    """Redirect the browser to a page that reports why nothing changed."""
    flash = Flash("refused", text)
    return await _redirect(call, flash, Links.of(call.request)(path, *parts, **query))


async def _redirect(call: RequestContext, flash: Flash, address: str) -> Response:
    response = RedirectResponse(address, 303)
    await flashes.set_flash(call.service, call.request, response, flash)
    return response
