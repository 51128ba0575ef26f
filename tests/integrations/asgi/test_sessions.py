"""Requests whose session is joined by every enqueue."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy
import sqlmodel
from fastapi import Depends, FastAPI
from litestar import Litestar, Request, post
from litestar.middleware import DefineMiddleware
from litestar.params import FromQuery
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_sessionmaker,
    create_async_engine,
)
from sqlmodel.ext.asyncio.session import AsyncSession as SqlmodelAsyncSession

from outlast import Outlast, WrongConnection
from outlast.integrations.asgi import SessionMiddleware
from outlast.integrations.fastapi import bound_session
from tests.support import Database


def engine_url(database: Database, sqlite: str, postgres: str) -> str:
    if database.is_sqlite:
        return f"{sqlite}:///{database.path}"
    return database.direct_url.replace("postgresql://", f"{postgres}://")


@pytest.fixture
def engine(database: Database) -> Iterator[sqlalchemy.Engine]:
    made = sqlalchemy.create_engine(engine_url(database, "sqlite", "postgresql+psycopg"))
    yield made
    made.dispose()


def async_engine(database: Database) -> AsyncEngine:
    return create_async_engine(engine_url(database, "sqlite+aiosqlite", "postgresql+asyncpg"))


async def states(app: Any, path: str) -> list[int]:
    """The status of a request that commits, and of one that does not."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
        return [(await client.post(f"{path}?fail={fail}")).status_code for fail in (0, 1)]


@pytest.mark.parametrize("kind", [AsyncSession, SqlmodelAsyncSession])
async def test_an_asyncio_session_is_joined(ol: Outlast, database: Database, kind: Any) -> None:
    """R002: the job of a request that fails does not exist."""
    engine, noop, app = async_engine(database), ol.task(lambda: None, name="noop"), FastAPI()

    async def get_session() -> AsyncIterator[AsyncSession]:
        async with kind(engine) as session:
            yield session

    joined = Depends(bound_session(ol, get_session))

    @app.post("/")
    async def create(fail: int, session: Any = joined) -> None:
        await noop.aenqueue()
        if fail:
            raise RuntimeError("after the enqueue")
        await session.commit()

    assert await states(app, "/") == [200, 500]
    await engine.dispose()
    assert len(await ol.ajobs()) == 1


@pytest.mark.parametrize("kind", [sqlalchemy.orm.Session, sqlmodel.Session])
async def test_a_blocking_session_is_joined_in_its_thread(
    ol: Outlast, engine: sqlalchemy.Engine, kind: Any
) -> None:
    """R002: FastAPI runs the endpoint and its session in threads."""
    noop, app = ol.task(lambda: None, name="noop"), FastAPI()

    def get_session() -> Iterator[Any]:
        with kind(engine) as session:
            yield session

    joined = Depends(bound_session(ol, get_session))

    @app.post("/")
    def create(fail: int, session: Any = joined) -> None:
        noop.enqueue()
        if fail:
            raise RuntimeError("after the enqueue")
        session.commit()

    assert await states(app, "/") == [200, 500]
    assert len(await ol.ajobs()) == 1


async def test_litestar_joins_the_session_of_the_middleware(
    ol: Outlast, database: Database
) -> None:
    """R002"""
    engine, noop = async_engine(database), ol.task(lambda: None, name="noop")

    @post("/")
    async def create(request: Request[Any, Any, Any], fail: FromQuery[int]) -> None:
        await noop.aenqueue()
        if fail:
            raise RuntimeError("after the enqueue")
        await request.state.session.commit()

    middleware = DefineMiddleware(SessionMiddleware, ol=ol, sessions=async_sessionmaker(engine))
    assert await states(Litestar([create], middleware=[middleware], logging_config=None), "/") == [
        201,
        500,
    ]
    await engine.dispose()
    assert len(await ol.ajobs()) == 1


def test_a_session_of_another_database_is_not_joined(ol: Outlast, tmp_path: Path) -> None:
    """R221: it is refused, and nothing is stored in either; conn=None within it is no way out."""
    noop, other = ol.task(lambda: None, name="noop"), tmp_path / "other.db"
    engine = sqlalchemy.create_engine(f"sqlite:///{other}")
    with sqlalchemy.orm.Session(engine) as session, ol.bind(session):
        with pytest.raises(WrongConnection):
            noop.enqueue()
        session.commit()
    engine.dispose()
    assert ol.jobs() == []
    with sqlite3.connect(other) as raw:
        assert raw.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
    raw.close()
