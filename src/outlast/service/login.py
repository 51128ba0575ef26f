"""A browser's session: it begins with a token, and ends by itself, with the token, or by logout."""

from __future__ import annotations

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ..model.tokens import LONGEST_TOKEN, Scope
from .bodies import body_of, form_of, kind_of
from .calls import Call
from .dashboard.links import Links
from .dashboard.refusals import LACKS_READ, wants_page
from .guards import refuse_strange_origin
from .problems import Forbidden
from .route import ANY_TOKEN, PUBLIC, Route

FORM = "application/x-www-form-urlencoded"
LONGEST_LOGIN = 4_000  # bytes


class NoPages(Forbidden):
    """A good token that opens none of the pages."""

    kind = LACKS_READ


class LoginBody(BaseModel):
    token: str = Field(min_length=1, max_length=LONGEST_TOKEN)
    after: str = Field("", max_length=4_000)  # where a page's form goes on to


async def login(call: Call) -> Response:
    """As JSON it is answered with 204; a page's form is sent on to the start."""
    request = call.request
    refuse_strange_origin(request, must_tell=False)
    if form := kind_of(request) == FORM:
        body = await form_of(request, LoginBody, LONGEST_LOGIN)
    else:
        body, _ = await body_of(request, LoginBody, LONGEST_LOGIN)
    who = await call.service.principals.login(request, body.token)
    assert who.token is not None
    if form and not who.may(Scope.READ):
        raise NoPages("this token lacks the scope `read`, which every page needs: use another one")
    response = _on(request, body.after) if form else Response(status_code=204)
    await call.service.sessions.begin(request, response, who.token)
    return response


async def logout(call: Call) -> Response:
    refuse_strange_origin(call.request, must_tell=False)
    person = kind_of(call.request) == FORM or wants_page(call.request)
    response = _on(call.request, "") if person else Response(status_code=204)
    await call.service.sessions.end(call.request, response)
    return response


def _on(request: Request, after: str) -> Response:
    """To a page of ours, whatever the form says."""
    return RedirectResponse(Links.of(request).local(after), 303)


class Whoami(BaseModel):
    """The caller, as far as it may know itself."""

    name: str
    tenant: str | None
    scopes: list[str]
    queues: list[str] | None


async def whoami(call: Call) -> Whoami:
    who = call.who
    queues = None if who.queues is None else sorted(who.queues)
    return Whoami(name=who.name, tenant=who.tenant, scopes=sorted(who.scopes), queues=queues)


ROUTES = (
    Route("POST", "/login", PUBLIC, login, "Begin a browser's session with a token",
          status=204, statuses=(400, 401, 403, 413, 415, 422, 429)),
    Route("POST", "/logout", PUBLIC, logout, "End a browser's session", status=204,
          statuses=(403,)),
    Route("GET", "/api/v1/whoami", ANY_TOKEN, whoami, "Who calls", response=Whoami),
)  # fmt: skip
