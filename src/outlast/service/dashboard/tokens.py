"""The page of API tokens. A token is shown once, when it is created."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from ...client.verb_arguments import job_id
from ...model.api_token import Scope, Token, new_token
from ...model.errors import InvalidOption
from ...ops import tokens
from ..api.request_models import Reason, RequestModel
from ..problems import Forbidden
from ..request import RequestContext
from .confirm import Confirmation, confirmation_page, redirect_done, submitted_form
from .pages import action_route, page_route, render_page

DAY_S = 86400.0


class TokenForm(RequestModel):
    """The form for a new token; each scope is a checkbox."""

    name: Reason = ""
    read: str = ""
    enqueue: str = ""
    signal: str = ""
    work: str = ""
    admin: str = ""
    tenant: Reason = ""
    queues: Reason = ""  # comma-separated
    days: Reason = ""

    @property
    def scopes(self) -> list[str]:
        return [str(scope) for scope in Scope if getattr(self, str(scope))]

    @property
    def options(self) -> dict[str, Any]:
        queues = [name.strip() for name in self.queues.split(",") if name.strip()]
        return {
            "tenant": self.tenant.strip() or None,
            "queues": queues or None,
            "expires_in": self._days() * DAY_S if self.days.strip() else None,
        }

    def _days(self) -> float:
        try:
            return float(self.days)
        except ValueError:
            raise InvalidOption(option="days", reason="must be a number of days") from None


async def tokens_page(call: RequestContext) -> Response:
    _require_all_queues(call)
    return await _tokens_page(call, TokenForm(read="on"))


async def do_create_token(call: RequestContext) -> Response:
    """Create a token and show it in the response: no URL leads to it again."""
    _require_all_queues(call)
    body = await submitted_form(call, TokenForm)
    try:
        secret, new = new_token(body.name.strip(), body.scopes, **body.options)
    except InvalidOption as error:
        return await _tokens_page(call, body, problem=str(error), status=422)
    made = await call.ol.store.arun(tokens.create, new, call.by)
    return await _tokens_page(call, TokenForm(read="on"), secret=secret, made=made, status=201)


async def ask_revoke_token(call: RequestContext) -> Response:
    _require_all_queues(call)
    id = job_id(call.request.path_params["token"])
    found = next((one for one in await _all(call) if one.id == id), None)
    confirmation = Confirmation(
        title=f"Revoke the token {found.name if found else id}?",
        consequence="Calls with it are rejected from now on; its open streams and sessions end"
        " within a few seconds. This cannot be undone.",
        button="Revoke it",
        path=f"/tokens/{id}/revoke",
        back="/tokens",
        danger=True,
    )
    return await confirmation_page(call, confirmation)


async def do_revoke_token(call: RequestContext) -> Response:
    _require_all_queues(call)
    await submitted_form(call, RequestModel)
    id = job_id(call.request.path_params["token"])
    token = await call.ol.store.arun(tokens.revoke, id, call.by)
    return await redirect_done(call, f"The token {token.name} is revoked.", "/tokens")


def _require_all_queues(call: RequestContext) -> None:
    """Refuse a token restricted to some queues: it must not create one without the restriction."""
    if call.who.queues is not None:
        raise Forbidden("this concerns all queues: use a token that is not restricted to some")


async def _all(call: RequestContext) -> list[Token]:
    return await call.ol.store.arun(tokens.tokens)


async def _tokens_page(
    call: RequestContext, submitted: TokenForm, status: int = 200, **facts: object
) -> Response:
    values = {"problem": None, "secret": None, "made": None} | facts
    return await render_page(
        call, "tokens.html", status, tokens=await _all(call), asked=submitted, scopes=list(Scope),
        **values,
    )  # fmt: skip


ROUTES = (
    page_route("/tokens", tokens_page, "Tokens", everyone=True, scope=Scope.ADMIN),
    action_route("/tokens", do_create_token, "Create a token", everyone=True),
    page_route("/tokens/{token}/revoke", ask_revoke_token, "Revoke a token?", everyone=True,
         scope=Scope.ADMIN),
    action_route("/tokens/{token}/revoke", do_revoke_token, "Revoke a token", everyone=True),
)  # fmt: skip
