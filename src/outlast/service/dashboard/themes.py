"""The theme: light, dark or the system's; stored in a cookie, so that no page flickers."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field
from starlette.responses import RedirectResponse, Response

from ...model.api_token import Scope
from ..request import RequestContext
from ..route import HTML, Route
from .confirm import submitted_form
from .layout import THEME_COOKIE
from .links import Links

YEAR_S = 365 * 86400


class ThemeBody(BaseModel):
    theme: Literal["auto", "light", "dark"]
    back: str = Field("", max_length=4_000)


async def set_theme(call: RequestContext) -> Response:
    body = await submitted_form(call, ThemeBody)
    response = RedirectResponse(Links.of(call.request).local(body.back), 303)
    response.set_cookie(
        THEME_COOKIE, body.theme, YEAR_S, path="/", samesite="strict", httponly=True,
        secure=call.request.url.scheme == "https",
    )  # fmt: skip
    return response


ROUTES = (
    Route("POST", "/theme", Scope.READ, set_theme, "Set the theme: light, dark or auto",
          status=303, media=(HTML,)),
)  # fmt: skip
