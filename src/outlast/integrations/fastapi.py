"""Outlast in a FastAPI app. Needs `outlast[serve]` and FastAPI.

events = JobEvents(ol)
app = FastAPI(lifespan=lifespan(ol, events=events, concurrency=8))
DbSession = Annotated[AsyncSession, Depends(bound_session(ol, get_session))]

@app.post("/orders")
async def order(item: str, session: DbSession):
    session.add(Order(item=item))
    job = await ship.aenqueue(item)        # in the transaction of the session
    await session.commit()
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from fastapi import Depends

from ..client.client import Outlast
from .asgi import JobEvents, SessionMiddleware, lifespan

__all__ = ["JobEvents", "SessionMiddleware", "bound_session", "lifespan"]


def bound_session(ol: Outlast, session: Callable[..., object]) -> Callable[..., AsyncIterator[Any]]:
    """A dependency: the request's session, provided by `session` and joined by every enqueue
    without `conn` until the endpoint has ended. For asyncio sessions in `async def` endpoints, and
    blocking ones in `def` endpoints.

    It is a coroutine even for blocking sessions: FastAPI runs other dependencies in a thread with a
    context of its own, where a bound session would be lost."""

    async def joined(found: object = Depends(session)) -> AsyncIterator[Any]:
        with ol.bind(found):
            yield found

    return joined
