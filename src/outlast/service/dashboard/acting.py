"""Every action asks once, is on record with the caller's name, and says what it did.

    GET  /queues/pause?queue=mail    the question, as a page (a script may show it in a dialog)
    POST /queues/pause               does it, and sends the browser on: see `done`

The question's form carries all that the action needs, and goes to the same path. What is asked and
what is done are checked alike: nothing relies on the question having been seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from pydantic import BaseModel
from starlette.responses import RedirectResponse, Response

from ..bodies import form_of, kind_of
from ..calls import Call
from ..problems import WrongMedia
from . import flashes
from .flashes import Flash
from .links import Links
from .pages import page

FORM = "application/x-www-form-urlencoded"
LONGEST_FORM = 100_000  # bytes

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Blank:
    """What is to be filled in."""

    name: str
    label: str
    value: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """`consequence` says what will happen, in a sentence; `path` is where the form goes."""

    title: str
    consequence: str
    button: str
    path: str
    back: str  # the path of the page that one comes from
    fields: Mapping[str, str] = field(default_factory=dict)
    danger: bool = False  # it cannot be undone
    blank: Blank | None = None


async def ask(call: Call, question: Question) -> Response:
    return await page(call, "question.html", question=question)


async def form(call: Call, model: type[M]) -> M:
    """What the question's form sent."""
    if kind_of(call.request) != FORM:
        raise WrongMedia(f"send a form ({FORM})")
    return await form_of(call.request, model, LONGEST_FORM)


async def done(call: Call, text: str, path: str = "/", *parts: object, **query: object) -> Response:
    """Send the browser on to a page that says what was done."""
    return await _sent_on(call, Flash("done", text), Links.of(call.request)(path, *parts, **query))


async def refused(
    call: Call, text: str, path: str = "/", *parts: object, **query: object
) -> Response:
    """Send the browser on to a page that says why nothing was done."""
    flash = Flash("refused", text)
    return await _sent_on(call, flash, Links.of(call.request)(path, *parts, **query))


async def _sent_on(call: Call, flash: Flash, address: str) -> Response:
    made = RedirectResponse(address, 303)
    await flashes.tell(call.service, call.request, made, flash)
    return made
