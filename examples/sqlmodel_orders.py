"""Orders and the jobs that ship them, in one transaction: FastAPI, SQLModel, and a bound session.

uvicorn sqlmodel_orders:app
curl -X POST 'localhost:8000/orders?item=lamp'
curl -X POST 'localhost:8000/orders?item=nothing'      # refused: no order, and no job
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException
from sqlalchemy.ext.asyncio import create_async_engine
from sqlmodel import Field, SQLModel
from sqlmodel.ext.asyncio.session import AsyncSession

from outlast import Outlast
from outlast.integrations.fastapi import bound_session, lifespan

ol = Outlast(os.environ.get("OUTLAST_URL", "sqlite:///orders.db"))
engine = create_async_engine(os.environ.get("ENGINE_URL", "sqlite+aiosqlite:///orders.db"))


class Order(SQLModel, table=True):
    id: int = Field(default=None, primary_key=True)
    item: str
    parcel: str | None = None


async def get_session() -> AsyncIterator[AsyncSession]:
    async with AsyncSession(engine, expire_on_commit=False) as session:
        yield session


DbSession = Annotated[AsyncSession, Depends(bound_session(ol, get_session))]


@ol.task
async def ship(order: int) -> str:
    async with AsyncSession(engine) as session:
        found = await session.get_one(Order, order)
        found.parcel = f"parcel of one {found.item}"
        await session.commit()
        return f"shipped {order}"


async def place(session: AsyncSession, item: str) -> Order:
    """Deep in the code, where nothing is known of the request: the job belongs to its session."""
    order = Order(item=item)
    session.add(order)
    await session.flush()
    await ship.aenqueue(order.id)
    return order


@asynccontextmanager
async def running(app: FastAPI) -> AsyncIterator[None]:
    async with engine.begin() as connection:
        await connection.run_sync(SQLModel.metadata.create_all)
    async with lifespan(ol, concurrency=4)(app):
        yield
    await engine.dispose()


app = FastAPI(lifespan=running)


@app.post("/orders", status_code=202)
async def create(item: str, session: DbSession) -> Order:
    order = await place(session, item)
    if item == "nothing":
        raise HTTPException(422, "there is nothing to ship")  # neither order nor job
    await session.commit()
    return order
