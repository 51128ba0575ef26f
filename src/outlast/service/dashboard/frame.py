"""The frame around every page: who looks at it, the menu, the theme, the time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.requests import Request

from ...model.errors import OutlastError
from ...model.tokens import Scope
from ...version import VERSION
from ..principals import Principal
from .links import Links
from .statics import address

if TYPE_CHECKING:
    from ..state import Service

THEMES = ("auto", "light", "dark")
THEME_COOKIE = "outlast_theme"


@dataclass(frozen=True, slots=True)
class Entry:
    """`everyone`: it shows what belongs to all tenants, so that a tenant does not see it."""

    path: str
    label: str
    scope: Scope = Scope.READ
    everyone: bool = False

    def shown_to(self, who: Principal) -> bool:
        return who.may(self.scope) and not (self.everyone and who.tenant is not None)


MENU = (
    Entry("/", "Overview"),
    Entry("/jobs", "Jobs"),
    Entry("/flows", "Flows"),
    Entry("/dead", "Dead letter"),
    Entry("/queues", "Queues"),
    Entry("/workers", "Workers", everyone=True),
    Entry("/recovery", "Recovery", everyone=True),
    Entry("/schedule", "Schedule"),
    Entry("/tokens", "Tokens", Scope.ADMIN, everyone=True),
)


async def frame(service: Service, request: Request, who: Principal | None) -> dict[str, Any]:
    """What every template may use."""
    links = Links.of(request)
    return {
        "url": links,
        "static": partial(address, links),
        "who": who,
        "may_act": who is not None and who.may(Scope.ADMIN),
        "menu": [] if who is None else menu_of(who),
        "here": _section(request),
        "back_here": address_of(request),
        "theme": theme_of(request),
        "themes": THEMES,
        "now": await _now(service),
        "version": VERSION,
        "flash": None,
    }


async def _now(service: Service) -> float:
    """The database's clock. While it is away, our own will do to say so on a page."""
    try:
        return await service.principals.now()
    except OutlastError:
        return time.time()


def menu_of(who: Principal) -> list[Entry]:
    """Those pages that there are, and that this caller may see."""
    from . import ROUTES

    known = {route.path for route in ROUTES}
    return [entry for entry in MENU if entry.path in known and entry.shown_to(who)]


def theme_of(request: Request) -> str:
    chosen = request.cookies.get(THEME_COOKIE, "auto")
    return chosen if chosen in THEMES else "auto"


def address_of(request: Request) -> str:
    """The page that is looked at, to come back to; after a form, the start."""
    if request.method != "GET":
        return ""
    query = request.url.query
    return f"{request.url.path}?{query}" if query else request.url.path


def _section(request: Request) -> str:
    """The first word of the path: which entry of the menu this page belongs to."""
    path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    return f"/{path.lstrip('/').partition('/')[0]}"
