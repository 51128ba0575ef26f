"""The layout of every page: user, menu, theme and time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote

from starlette.requests import Request

from ...model.api_token import Scope
from ...model.errors import OutlastError
from ...version import VERSION
from ..auth.principals import Principal
from .links import Links
from .static_files import static_url

if TYPE_CHECKING:
    from ..components import Service

THEMES = ("auto", "light", "dark")
THEME_COOKIE = "outlast_theme"
DATABASES = "outlast.databases"  # in a request's scope: the prefix of the page over several


@dataclass(frozen=True, slots=True)
class MenuEntry:
    """A menu entry. `everyone`: it concerns all tenants, and is hidden from users of one."""

    path: str
    label: str
    scope: Scope = Scope.READ
    everyone: bool = False

    def shown_to(self, who: Principal) -> bool:
        return who.has_scope(self.scope) and not (self.everyone and who.tenant is not None)


MENU = (
    MenuEntry("/", "Overview"),
    MenuEntry("/jobs", "Jobs"),
    MenuEntry("/flows", "Flows"),
    MenuEntry("/dead", "Dead letter"),
    MenuEntry("/queues", "Queues"),
    MenuEntry("/bridges", "Brokers", everyone=True),
    MenuEntry("/workers", "Workers", everyone=True),
    MenuEntry("/recovery", "Recovery", everyone=True),
    MenuEntry("/schedules", "Schedules"),
    MenuEntry("/schedule", "Due next"),
    MenuEntry("/tokens", "Tokens", Scope.ADMIN, everyone=True),
)


async def layout_context(
    service: Service, request: Request, who: Principal | None
) -> dict[str, object]:
    """Values for every template."""
    links = Links.of(request)
    return {
        "url": links,
        "static": partial(static_url, links),
        "who": who,
        "may_act": who is not None and who.has_scope(Scope.ADMIN),
        "menu": [] if who is None else menu_of(who),
        "databases": _databases_link(request),
        "database": request.scope.get("root_path", "").rpartition("/")[2],
        "here": _section(request),
        "back_here": page_address(request),
        "theme": theme_of(request),
        "themes": THEMES,
        "now": await _now(service),
        "version": VERSION,
        "flash": None,
    }


def _databases_link(request: Request) -> str | None:
    """The link to the page over several databases, if this is the service of one of them."""
    prefix = request.scope.get(DATABASES)
    return None if prefix is None else Links(quote(prefix, safe="/"))("/")


async def _now(service: Service) -> float:
    """The database's clock, or this machine's while the database is unavailable."""
    try:
        return await service.principals.now()
    except OutlastError:
        return time.time()


def menu_of(who: Principal) -> list[MenuEntry]:
    """The existing pages that this caller may see."""
    from . import ROUTES

    known = {route.path for route in ROUTES}
    return [entry for entry in MENU if entry.path in known and entry.shown_to(who)]


def theme_of(request: Request) -> str:
    chosen = request.cookies.get(THEME_COOKIE, "auto")
    return chosen if chosen in THEMES else "auto"


def page_address(request: Request) -> str:
    """The address of this page, to return to; after a form, the start page."""
    if request.method != "GET":
        return ""
    query = request.url.query
    return f"{request.url.path}?{query}" if query else request.url.path


def _section(request: Request) -> str:
    """The first segment of the path: the menu entry of this page."""
    path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    return f"/{path.lstrip('/').partition('/')[0]}"
