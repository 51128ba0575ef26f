"""Browser sessions: begin with a token; end by expiry, with the token, or by logout."""

from __future__ import annotations

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ...model.api_token import MAX_TOKEN_CHARS, Scope
from ..dashboard.error_pages import LACKS_READ, wants_page
from ..dashboard.links import Links
from ..parsing import body_of, form_of, media_type_of
from ..problems import Forbidden
from ..request import RequestContext
from ..route import ANY_TOKEN, PUBLIC, Route
from ..security import refuse_foreign_origin

FORM = "application/x-www-form-urlencoded"
MAX_LOGIN_BYTES = 4_000


class NoPages(Forbidden):
    """A valid token that gives access to no page."""

    kind = LACKS_READ


class LoginBody(BaseModel):
    token: str = Field(min_length=1, max_length=MAX_TOKEN_CHARS)
    after: str = Field("", max_length=4_000)  # redirect target of a page's form


async def login(call: RequestContext) -> Response:
    """Log in: respond 204 to JSON, and redirect a page's form to the start page."""
    request = call.request
    refuse_foreign_origin(request, required=False)
    if form := media_type_of(request) == FORM:
        body = await form_of(request, LoginBody, MAX_LOGIN_BYTES)
    else:
        body, _ = await body_of(request, LoginBody, MAX_LOGIN_BYTES)
    who = await call.service.principals.login(request, body.token)
    assert who.token is not None
    if form and not who.has_scope(Scope.READ):
        raise NoPages("this token lacks the scope `read`, which every page needs: use another one")
    response = _redirect_to(request, body.after) if form else Response(status_code=204)
    await call.service.sessions.begin(request, response, who.token)
    return response


async def logout(call: RequestContext) -> Response:
    refuse_foreign_origin(call.request, required=False)
    person = media_type_of(call.request) == FORM or wants_page(call.request)
    response = _redirect_to(call.request, "") if person else Response(status_code=204)
    await call.service.sessions.end(call.request, response)
    return response


def _redirect_to(request: Request, after: str) -> Response:
    """Redirect to a path of this service, whatever the form contains."""
    return RedirectResponse(Links.of(request).local(after), 303)


class Whoami(BaseModel):
    """The caller's own access."""

    name: str
    tenant: str | None
    scopes: list[str]
    queues: list[str] | None


async def whoami(call: RequestContext) -> Whoami:
    who = call.who
    queues = None if who.queues is None else sorted(who.queues)
    return Whoami(name=who.name, tenant=who.tenant, scopes=sorted(who.scopes), queues=queues)


ROUTES = (
    Route("POST", "/login", PUBLIC, login, "Start a browser session with a token",
          status=204, statuses=(400, 401, 403, 413, 415, 422, 429)),
    Route("POST", "/logout", PUBLIC, logout, "End a browser session", status=204,
          statuses=(403,)),
    Route("GET", "/api/v1/whoami", ANY_TOKEN, whoami, "Who calls", response=Whoami),
)  # fmt: skip
