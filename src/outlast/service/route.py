"""A route: a line of the table that routing, authorization, OpenAPI and tests are built from."""

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
    """`path` is as Starlette and OpenAPI write it: `/api/v1/jobs/{id}`. What an endpoint returns
    that is no Response is sent as JSON with `status`; None as 204.

    `everyone`: it shows or changes what belongs to all tenants, so that no tenant's token will do.
    `media` is what comes out instead of JSON. `statuses` are further ones that its callers meet
    (those of authorisation and of bad input are known without it).
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
    also: Scope | None = None  # a second scope that it needs
    media: tuple[str, ...] = ("application/json",)
    statuses: tuple[int, ...] = ()
    pending: str = ""  # the meaning of status 202, with the same body, if it is ever sent
    headers: dict[str, str] = field(default_factory=dict)  # that it reads, with their meaning

    @property
    def name(self) -> str:
        """Its unique name, for OpenAPI and tests."""
        return self.endpoint.__name__

    @property
    def is_page(self) -> bool:
        """Read by people in a browser: errors are pages, too."""
        return HTML in self.media

    @property
    def changes(self) -> bool:
        return self.method not in {"GET", "HEAD"}
