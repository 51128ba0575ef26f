"""The context of a request: the service, the caller, and the validated input."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.requests import Request

from ..ops.access import Access
from .auth.principals import Principal
from .route import Route

if TYPE_CHECKING:
    from ..client.client import Outlast
    from .components import Service
    from .events.broadcaster import Broadcaster


@dataclass(frozen=True, slots=True)
class RequestContext:
    """An authorized request. `body` and `query` are validated by the route's models."""

    service: Service
    who: Principal
    request: Request
    route: Route
    body: Any = None
    query: Any = None
    size: int = 0  # bytes of the body

    @property
    def ol(self) -> Outlast:
        return self.service.ol

    @property
    def reach(self) -> Access:
        """The jobs that this caller may see and change: pass it to every operation."""
        return self.who.reach

    @property
    def by(self) -> str:
        """The actor's name, for the record."""
        return self.who.name

    @property
    def broadcaster(self) -> Broadcaster:
        return self.service.broadcaster

    @property
    def longest_s(self) -> float:
        stay: float | None = getattr(self.query, "stay", None)
        return math.inf if stay is None else stay

    @asynccontextmanager
    async def while_allowed(self) -> AsyncIterator[asyncio.Event]:
        """For streams: an event that is set within a few seconds after the token was revoked or
        expired. Wait for it as well, and end the stream.

            async with call.while_allowed() as over:
                while not over.is_set(): …
        """
        async with self.service.revocations.watch(self.who) as over:
            yield over
