"""The page over several databases: each with its counts, or the time since it is unreachable.

Each database has its own sessions. Operators (sessions without a tenant) of any database see the
names of all, and which ones are unreachable; the counts of a database need a session there.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import HTMLResponse

from ...model.api_token import Scope
from ...model.errors import OutlastError
from ...model.lifecycle import State
from ...ops.live_stats import LiveStats
from ...version import VERSION
from ..auth.principals import Principal
from ..problems import RequestRefused
from .layout import THEMES, theme_of
from .links import Links
from .pages import HEADERS
from .static_files import static_url
from .templates import render

if TYPE_CHECKING:
    from ..components import Service

ANSWER_WAIT_S = 1.0  # for a database's counts, and for its check of a session
FILES = "/-"  # path of static files; no database can have this name
STATES = (State.READY, State.RUNNING, State.SCHEDULED, State.WAITING, State.DEAD)
HEADINGS = [f"{state.capitalize()}#" for state in STATES]  # of columns of numbers


@dataclass(frozen=True, slots=True)
class DatabaseStatus:
    """The status of one database, for a caller."""

    name: str
    unreachable_since: float | None = None  # seconds since the epoch
    who: Principal | None = None  # None: the caller has no session there
    board: LiveStats | None = None  # None: not counted yet
    age: float | None = None  # seconds, of counts that are not current

    @classmethod
    async def read(cls, name: str, service: Service, request: Request) -> DatabaseStatus:
        try:
            async with asyncio.timeout(ANSWER_WAIT_S):
                who = await service.principals.identify(request)
            if not who.has_scope(Scope.READ):
                return cls(name)
            snapshot = await service.live_view.cached.latest_within(ANSWER_WAIT_S)
        except RequestRefused:
            return cls(name)
        except (OutlastError, TimeoutError):
            return cls(name, unreachable_since=time.time())
        if snapshot is None:
            return cls(name, who=who)
        age = snapshot.age if snapshot.is_stale else None
        return cls(name, who=who, board=snapshot.board.of(who.reach), age=age)

    @property
    def is_operator(self) -> bool:
        """Whether the caller sees all tenants and queues here."""
        return self.who is not None and self.who.tenant is None and self.who.queues is None

    @property
    def unreachable_since_text(self) -> str:
        since = datetime.fromtimestamp(self.unreachable_since or 0.0, UTC)
        return f"{since:%Y-%m-%d %H:%M:%S} UTC"

    @property
    def counts(self) -> Counter[str]:
        return Counter() if self.board is None else self.board.by_state

    @property
    def oldest_ready(self) -> float | None:
        """The age of the ready job that has waited longest, in seconds."""
        depths = [] if self.board is None else self.board.depths
        return max((one.oldest for one in depths if one.state == State.READY), default=None)


def databases_page(request: Request, found: Sequence[DatabaseStatus]) -> HTMLResponse:
    """The page, or a form for the login of one database, which lists none."""
    operator = any(one.is_operator for one in found)
    shown = found if operator else [one for one in found if one.who is not None]
    some_away = any(one.unreachable_since is not None for one in found)
    facts = {"shown": shown, "states": STATES, "headings": HEADINGS, "some_away": some_away}
    template = "databases.html" if shown else "databases_login.html"
    page = render(template, {**_layout(request), **facts})
    return HTMLResponse(page, 200 if shown else 401, HEADERS)


def _layout(request: Request) -> dict[str, object]:
    """Values for every template, without a database."""
    links = Links.of(request)
    return {
        "url": links,
        "static": partial(static_url, Links(links(FILES))),
        "who": None,
        "menu": [],
        "databases": None,
        "theme": theme_of(request),
        "now": time.time(),
        "version": VERSION,
        "flash": None,
        "themes": THEMES,
    }
