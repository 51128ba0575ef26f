"""Every kind of asyncio connection a caller may bring, and the list of all kinds.

They run on a loop that the caller owns, so a test reads the same for all.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from typing import Any

import pytest

from outlast import Job, Outlast
from outlast.model.task import Call
from tests.store.callers import (
    Caller,
    Django,
    Psycopg,
    PsycopgBlock,
    PsycopgDicts,
    SqlalchemyConnection,
    SqlalchemyScoped,
    SqlalchemySession,
    Sqlite3,
    Sqlite3ByHand,
    Sqlite3Dicts,
    alchemy_url,
)
from tests.support import Database


class AsyncCaller(Caller):
    """The same on a loop of the caller's own."""

    def __init__(self, database: Database) -> None:
        self.loop = asyncio.Runner()
        super().__init__(database)

    def open(self) -> Any:
        return self.loop.run(self.aopen())

    async def aopen(self) -> Any:
        raise NotImplementedError

    def enqueue(self, app: Outlast, *calls: Call) -> list[Job]:
        return self.loop.run(app.aenqueue(*calls, conn=self.connection))

    def act(self, app: Outlast, verb: str, id: str) -> Any:
        return self.loop.run(getattr(app, f"a{verb}")(id, conn=self.connection))

    def execute(self, sql: str) -> Any:
        return self.loop.run(self.aexecute(sql))

    async def aexecute(self, sql: str) -> Any:
        return await self.connection.execute(sql)

    def commit(self) -> None:
        self.loop.run(self.connection.commit())

    def rollback(self) -> None:
        self.loop.run(self.connection.rollback())

    def close(self) -> None:
        self.loop.run(self.aclose())
        self.loop.close()

    async def aclose(self) -> None:
        await self.connection.close()


class Sqlite3InLoop(AsyncCaller):
    """A blocking connection that an asyncio program uses: SQLite never waits for long."""

    async def aopen(self) -> Any:
        return sqlite3.connect(self.database.path)

    async def aexecute(self, sql: str) -> Any:
        return self.connection.execute(sql)

    def commit(self) -> None:
        self.connection.commit()

    def rollback(self) -> None:
        self.connection.rollback()

    async def aclose(self) -> None:
        self.connection.close()


class PsycopgAsync(AsyncCaller):
    async def aopen(self) -> Any:
        import psycopg

        return await psycopg.AsyncConnection.connect(self.database.direct_url)


class Asyncpg(AsyncCaller):
    async def aopen(self) -> Any:
        import asyncpg

        connection = await asyncpg.connect(self.database.direct_url)
        self.transaction = connection.transaction()
        await self.transaction.start()
        return connection

    def commit(self) -> None:
        self.loop.run(self.transaction.commit())

    def rollback(self) -> None:
        self.loop.run(self.transaction.rollback())


class AsyncpgPool(Asyncpg):
    """What a pool lends, with the JSON codec that many applications set."""

    async def aopen(self) -> Any:
        import asyncpg

        async def prepare(connection: Any) -> None:
            await connection.set_type_codec(
                "json", encoder=json.dumps, decoder=json.loads, schema="pg_catalog"
            )

        self.pool = await asyncpg.create_pool(
            self.database.direct_url, min_size=1, max_size=1, init=prepare
        )
        connection = await self.pool.acquire()
        self.transaction = connection.transaction()
        await self.transaction.start()
        return connection

    async def aclose(self) -> None:
        await self.pool.release(self.connection)
        await self.pool.close()


class SqlalchemyAsyncConnection(AsyncCaller):
    drivers = ("psycopg", "aiosqlite")

    def engine(self) -> Any:
        from sqlalchemy.ext.asyncio import create_async_engine

        return create_async_engine(alchemy_url(self.database, *self.drivers))

    async def aopen(self) -> Any:
        self.made = self.engine()
        return await self.made.connect()

    async def aexecute(self, sql: str) -> Any:
        from sqlalchemy import text

        return await self.connection.execute(text(sql))

    async def aclose(self) -> None:
        await self.connection.close()
        await self.made.dispose()


class SqlalchemyAsyncSession(SqlalchemyAsyncConnection):
    async def aopen(self) -> Any:
        from sqlalchemy.ext.asyncio import AsyncSession

        self.made = self.engine()
        return AsyncSession(self.made)


class SqlalchemyAsyncScoped(SqlalchemyAsyncConnection):
    async def aopen(self) -> Any:
        from sqlalchemy.ext.asyncio import async_scoped_session, async_sessionmaker

        self.made = self.engine()
        return async_scoped_session(async_sessionmaker(self.made), scopefunc=lambda: 1)


class SqlalchemyAsyncpg(SqlalchemyAsyncSession):
    drivers = ("asyncpg", "aiosqlite")


class SqlalchemyAsyncpgConnection(SqlalchemyAsyncConnection):
    drivers = ("asyncpg", "aiosqlite")


ON_SQLITE: tuple[type[Caller], ...] = (
    Sqlite3, Sqlite3ByHand, Sqlite3Dicts, Sqlite3InLoop, SqlalchemyConnection, SqlalchemySession,
    SqlalchemyScoped, SqlalchemyAsyncConnection, SqlalchemyAsyncSession, SqlalchemyAsyncScoped,
    Django,
)  # fmt: skip
ON_POSTGRES: tuple[type[Caller], ...] = (
    Psycopg, PsycopgDicts, PsycopgBlock, PsycopgAsync, Asyncpg, AsyncpgPool, SqlalchemyConnection,
    SqlalchemySession, SqlalchemyScoped, SqlalchemyAsyncConnection, SqlalchemyAsyncSession,
    SqlalchemyAsyncScoped, SqlalchemyAsyncpg, SqlalchemyAsyncpgConnection, Django,
)  # fmt: skip

# One of each library and colour. What is said of a single verb is slow on the others.
SAMPLE = {"Sqlite3", "SqlalchemyAsyncSession", "Psycopg", "Asyncpg", "SqlalchemySession", "Django"}

every_kind = pytest.mark.parametrize(
    "database,caller",
    [pytest.param("sqlite", kind, id=f"sqlite-{kind.__name__}") for kind in ON_SQLITE]
    + [
        pytest.param("postgres", kind, id=f"postgres-{kind.__name__}", marks=pytest.mark.postgres)
        for kind in ON_POSTGRES
    ],
    indirect=True,
)

sampled_kinds = pytest.mark.parametrize(
    "database,caller",
    [
        pytest.param(
            *param.values,
            id=param.id,
            marks=[
                *param.marks,
                *([] if param.values[1].__name__ in SAMPLE else [pytest.mark.slow]),
            ],
        )
        for param in every_kind.args[1]
    ],
    indirect=True,
)
