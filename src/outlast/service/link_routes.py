"""One-time links: `/signal/…`. The address is the credential, and needs no login.

A GET only shows the page of the link, because mail scanners fetch every URL. A POST sends the
signal, once. Forms of other sites are harmless: they do not know the URL. Guesses are refused by
their signature, without a query, and throttled.
"""

from __future__ import annotations

from starlette.responses import HTMLResponse, Response

from ..client.signals import declared_signals
from ..model.errors import InvalidSignal, LinkRefused
from ..model.ids import new_instance_id
from ..model.signal_form import form_buttons, form_inputs, submitted_value
from ..model.signal_link import KEY_PURPOSE, Choice, LinkRecord, LinkState, is_signed
from ..ops.signal_links import answer_link, link_of
from .api.job_actions import notify_workers
from .auth.principals import address_of
from .dashboard.layout import layout_context
from .dashboard.templates import render
from .parsing import fields_of
from .request import RequestContext
from .route import HTML, PUBLIC, Route

PATH = "/signal/{link}"
MAX_FORM_BYTES = 100_000
HEADERS = {"referrer-policy": "no-referrer", "x-robots-tag": "noindex"}
NO_VALUE = Choice("Send", "null")

REFUSALS = {
    LinkState.USED: "This link has been used. It works once.",
    LinkState.ANSWERED: "This question has been answered by another link.",
    LinkState.REVOKED: "This link was revoked.",
    LinkState.EXPIRED: "This link has expired.",
    LinkState.ENDED: "This link came too late: the job has ended.",
    LinkState.UNKNOWN: "This link is unknown: the address is incomplete, or the job was removed.",
}


async def signal_link_page(call: RequestContext) -> Response:
    link = await _link(call)
    return link if isinstance(link, Response) else await _question(call, link)


async def use_signal_link(call: RequestContext) -> Response:
    link = await _link(call)
    if isinstance(link, Response):
        return link
    use, check = new_instance_id(), declared_signals(call.ol.registry)
    try:
        value = _value(link, await fields_of(call.request, MAX_FORM_BYTES))
        sent = await call.ol.store.arun(answer_link, link.id, value, use, check)
    except LinkRefused as refused:
        return await _refusal(call, LinkState(refused.state))
    except InvalidSignal as error:
        return await _question(call, link, error)
    if sent.queue is not None:
        await notify_workers(call, sent.queue)
    return await _page(call, 200, link=link, done=True)


async def _link(call: RequestContext) -> LinkRecord | Response:
    """The link of a URL, if it is valid; else a page with the reason."""
    secret = call.request.path_params["link"]
    if not is_signed(await call.service.key(KEY_PURPOSE), secret):
        return await _wrong(call)
    link = await call.ol.store.arun(link_of, secret)
    state = LinkState.UNKNOWN if link is None else link.state
    if link is None or state is not LinkState.GOOD:
        return await _refusal(call, state)
    return link


async def _wrong(call: RequestContext) -> Response:
    """Refuse a URL with an invalid signature: a guess, or truncated."""
    throttle, address = call.service.wrong_links, address_of(call.request)
    if wait := throttle.wait(address):
        text = "Too many wrong links came from this address. Try again in a moment."
        response = await _page(call, 429, text=text)
        response.headers["retry-after"] = str(int(wait))
        return response
    throttle.record_failure(address)
    return await _refusal(call, LinkState.UNKNOWN)


def buttons(link: LinkRecord) -> tuple[Choice, ...]:
    """The values to choose from; empty: a form is shown instead."""
    if link.choices is not None:
        return link.choices
    return (NO_VALUE,) if link.form is None else form_buttons(link.form)


def _value(link: LinkRecord, submitted: dict[str, str]) -> str:
    """The JSON text of the chosen or entered value."""
    return submitted_value(link.name, link.form, buttons(link), submitted)


async def _question(
    call: RequestContext, link: LinkRecord, error: InvalidSignal | None = None
) -> Response:
    offered = buttons(link)
    inputs = [] if offered else form_inputs(link.form)
    status = 200 if error is None else 422
    return await _page(call, status, link=link, buttons=offered, inputs=inputs, error=error)


async def _refusal(call: RequestContext, state: LinkState) -> Response:
    return await _page(call, 404 if state is LinkState.UNKNOWN else 410, text=REFUSALS[state])


async def _page(call: RequestContext, status: int, **facts: object) -> Response:
    context = await layout_context(call.service, call.request, None)
    known = {"link": None, "done": False, "buttons": (), "inputs": (), "error": None, "text": ""}
    return HTMLResponse(render("link.html", {**context, **known, **facts}), status, HEADERS)


_STATUSES = (400, 404, 410, 413, 422, 429)

ROUTES = (
    Route("GET", PATH, PUBLIC, signal_link_page, "The page of a one-time link", media=(HTML,),
          statuses=_STATUSES),
    Route("POST", PATH, PUBLIC, use_signal_link, "Send the signal of a one-time link, once",
          media=(HTML,), statuses=_STATUSES),
)  # fmt: skip
