"""A route: a line of the table that defines routing, authorization, OpenAPI and tests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from pydantic import BaseModel
from starlette.responses import Response

from ..model.api_token import Scope

if TYPE_CHECKING:
    from .request import RequestContext

HTML = "text/html"
PUBLIC = None  # the scope of a public route


class AnyToken(Enum):
    """The scope of a route that needs a token, with any scope."""

    ANY_TOKEN = 1


ANY_TOKEN: Final = AnyToken.ANY_TOKEN

EndpointResult = Response | BaseModel | dict[str, object] | None
EndpointFunction = Callable[["RequestContext"], Awaitable[EndpointResult]]


@dataclass(frozen=True)
class Route:
    """A route. `path` has the form of Starlette and OpenAPI: `/api/v1/jobs/{id}`. A return value
    of the endpoint that is not a Response is sent as JSON with `status`; None as 204.

    `everyone`: it concerns all tenants, so that tokens of one tenant are refused. `media` are the
    media types of the response, if not JSON. `statuses` are further statuses (those of
    authorization and of invalid input are implied).
    """

    method: str
    path: str
    scope: Scope | AnyToken | None
    endpoint: EndpointFunction
    summary: str
    request: type[BaseModel] | None = None
    query: type[BaseModel] | None = None
    response: type[BaseModel] | None = None
    status: int = 200
    everyone: bool = False
    also: Scope | None = None  # a second required scope
    media: tuple[str, ...] = ("application/json",)
    statuses: tuple[int, ...] = ()
    pending: str = ""  # the meaning of status 202, with the same body, if it may be sent
    headers: dict[str, str] = field(default_factory=dict)  # request headers, with their meaning

    @property
    def name(self) -> str:
        """The unique name of the route, for OpenAPI and tests."""
        return self.endpoint.__name__

    @property
    def is_page(self) -> bool:
        """Whether it is a page for browsers: then its errors are pages, too."""
        return HTML in self.media

    @property
    def changes(self) -> bool:
        return self.method not in {"GET", "HEAD"}
