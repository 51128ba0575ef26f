"""Light, dark, or as the system has it: kept in a cookie, so that no page ever flickers."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field
from starlette.responses import RedirectResponse, Response

from ...model.tokens import Scope
from ..calls import Call
from ..route import HTML, Route
from .acting import form
from .frame import THEME_COOKIE
from .links import Links

A_YEAR = 365 * 86400


class ThemeBody(BaseModel):
    theme: Literal["auto", "light", "dark"]
    back: str = Field("", max_length=4_000)


async def set_theme(call: Call) -> Response:
    asked = await form(call, ThemeBody)
    made = RedirectResponse(Links.of(call.request).local(asked.back), 303)
    made.set_cookie(
        THEME_COOKIE, asked.theme, A_YEAR, path="/", samesite="strict", httponly=True,
        secure=call.request.url.scheme == "https",
    )  # fmt: skip
    return made


ROUTES = (
    Route("POST", "/theme", Scope.READ, set_theme, "Light, dark, or as the system has it",
          status=303, media=(HTML,)),
)  # fmt: skip
