"""A Litestar app: imports in the request's transaction, and their progress as server-sent events.

uvicorn litestar_app:app
curl -X POST 'localhost:8000/imports?rows=40'
curl -N localhost:8000/imports/JOB/events
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from litestar import Litestar, Request, get, post
from litestar.middleware import DefineMiddleware
from litestar.params import FromPath, FromQuery
from litestar.types import ASGIApp
from sqlalchemy import text
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

from outlast import Context, Outlast
from outlast.integrations.asgi import JobEvents, SessionMiddleware, lifespan

ol = Outlast("sqlite:///imports.db")
engine = create_async_engine("sqlite+aiosqlite:///imports.db")
events = JobEvents(ol)


@ol.task
async def load(rows: int, ctx: Context) -> int:
    for row in range(1, rows + 1):
        ctx.progress(row, rows)
        await asyncio.sleep(0.005)
    return rows


@post("/imports", status_code=202)
async def start(request: Request[Any, Any, Any], rows: FromQuery[int]) -> dict[str, str]:
    session = request.state.session
    await session.execute(text("CREATE TABLE IF NOT EXISTS import (size INTEGER)"))
    await session.execute(text("INSERT INTO import VALUES (:rows)"), {"rows": rows})
    job = await load.aenqueue(rows)  # in the same transaction
    if rows > 1000:
        raise ValueError("too many rows")  # neither row nor job
    await session.commit()
    return {"job": job.id}


@get("/imports/{id:str}/events")
async def follow(request: Request[Any, Any, Any], id: FromPath[str]) -> ASGIApp:
    return cast(ASGIApp, await events.job(request, id))


app = Litestar(
    [start, follow],
    lifespan=[lifespan(ol, events=events, concurrency=4)],
    middleware=[DefineMiddleware(SessionMiddleware, ol=ol, sessions=async_sessionmaker(engine))],
    on_shutdown=[engine.dispose],
)
