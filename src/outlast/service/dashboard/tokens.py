"""The page of tokens: who may come in, and with what. A token is shown once, when it is made."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from ...connected import job_id
from ...model.errors import InvalidOption
from ...model.tokens import Scope, Token, new_token
from ...ops import tokens
from ..api.asked import Incoming, Reason
from ..calls import Call
from ..problems import Forbidden
from .acting import Question, ask, done, form
from .pages import acts, page, seen

DAY = 86400.0


class TokenForm(Incoming):
    """Scopes are boxes, each with a name of its own."""

    name: Reason = ""
    read: str = ""
    enqueue: str = ""
    work: str = ""
    admin: str = ""
    tenant: Reason = ""
    queues: Reason = ""  # with commas between them
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
            "expires_in": self._days() * DAY if self.days.strip() else None,
        }

    def _days(self) -> float:
        try:
            return float(self.days)
        except ValueError:
            raise InvalidOption(option="days", reason="must be a number of days") from None


async def tokens_page(call: Call) -> Response:
    _over_everything(call)
    return await _shown(call, TokenForm(read="on"))


async def do_create_token(call: Call) -> Response:
    """The answer itself shows the token: no address leads to it again."""
    _over_everything(call)
    asked = await form(call, TokenForm)
    try:
        secret, new = new_token(asked.name.strip(), asked.scopes, **asked.options)
    except InvalidOption as error:
        return await _shown(call, asked, problem=str(error), status=422)
    made = await call.ol.store.arun(tokens.create, new, call.by)
    return await _shown(call, TokenForm(read="on"), secret=secret, made=made, status=201)


async def ask_revoke_token(call: Call) -> Response:
    _over_everything(call)
    id = job_id(call.request.path_params["token"])
    found = next((one for one in await _all(call) if one.id == id), None)
    question = Question(
        title=f"Revoke the token {found.name if found else id}?",
        consequence="Whoever uses it is refused from now on; its open streams and sessions end"
        " within a few seconds. It cannot be undone.",
        button="Revoke it",
        path=f"/tokens/{id}/revoke",
        back="/tokens",
        danger=True,
    )
    return await ask(call, question)


async def do_revoke_token(call: Call) -> Response:
    _over_everything(call)
    await form(call, Incoming)
    id = job_id(call.request.path_params["token"])
    token = await call.ol.store.arun(tokens.revoke, id, call.by)
    return await done(call, f"The token {token.name} is revoked.", "/tokens")


def _over_everything(call: Call) -> None:
    """Who is kept to some queues could make a token that is not."""
    if call.who.queues is not None:
        raise Forbidden("this concerns all queues: it needs a token that is not for some of them")


async def _all(call: Call) -> list[Token]:
    return await call.ol.store.arun(tokens.tokens)


async def _shown(call: Call, asked: TokenForm, status: int = 200, **facts: Any) -> Response:
    told = {"problem": None, "secret": None, "made": None} | facts
    return await page(
        call, "tokens.html", status, tokens=await _all(call), asked=asked, scopes=list(Scope),
        **told,
    )  # fmt: skip


ROUTES = (
    seen("/tokens", tokens_page, "Tokens", everyone=True, scope=Scope.ADMIN),
    acts("/tokens", do_create_token, "Make a token", everyone=True),
    seen("/tokens/{token}/revoke", ask_revoke_token, "Revoke a token?", everyone=True,
         scope=Scope.ADMIN),
    acts("/tokens/{token}/revoke", do_revoke_token, "Revoke a token", everyone=True),
)  # fmt: skip
