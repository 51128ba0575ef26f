"""What is given for the caller's transaction and is none, or leads to another database."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from outlast import Outlast, StoreError, StoreUnavailable, WrongConnection
from outlast.model.errors import Contention, SchemaMismatch, StoreBusy
from outlast.store.caller.errors import translate_caller_errors
from outlast.store.caller.not_a_connection import suggestion_for
from tests.store.callers import alchemy_url
from tests.support import Database


@pytest.fixture
def work(app: Outlast) -> Any:
    @app.task
    def work(n: int = 0) -> None: ...

    app.migrate()
    return work


def of_kind(module: str, name: str) -> Any:
    return type(name, (), {"__module__": module})()


@pytest.mark.kinds("postgres")
async def test_pools_and_engines_are_refused_with_what_to_give(
    app: Outlast, work: Any, database: Database
) -> None:
    """R221: a pool is no transaction, and neither is an engine, a sessionmaker or a cursor."""
    import asyncpg
    import psycopg
    from sqlalchemy import create_engine
    from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
    from sqlalchemy.orm import sessionmaker

    engine = create_engine(alchemy_url(database, "psycopg", ""))
    async_engine = create_async_engine(alchemy_url(database, "asyncpg", ""))
    async with asyncpg.create_pool(database.direct_url, min_size=1, max_size=1) as pool:
        with psycopg.connect(database.direct_url) as connection:
            wrong = [pool, engine, async_engine, sessionmaker(engine), connection.cursor(),
                     async_sessionmaker(async_engine),
                     of_kind("psycopg_pool.base", "BasePool")]  # fmt: skip
            for thing in wrong:
                with pytest.raises(WrongConnection, match=r"is no|this is a cursor"):
                    work.using(conn=thing).enqueue()
                with pytest.raises(WrongConnection, match=r"is no|this is a cursor"):
                    await work.using(conn=thing).aenqueue()
        assert app.jobs() == []
        async with pool.acquire() as lent:
            with pytest.raises(ZeroDivisionError):
                async with lent.transaction():
                    await work.using(conn=lent).aenqueue()
                    raise ZeroDivisionError
            assert app.jobs() == []
            async with lent.transaction():
                job = await work.using(conn=lent).aenqueue()
    assert [one.id for one in app.jobs()] == [job.id]
    engine.dispose()
    await async_engine.dispose()


@pytest.mark.kinds("postgres")
async def test_what_has_no_connection_yet_is_refused_with_what_to_give(
    app: Outlast, work: Any, database: Database
) -> None:
    """R221: `pool.acquire()` that was not entered, and sessions that are bound to no engine."""
    import asyncpg
    from sqlalchemy.ext.asyncio import AsyncSession
    from sqlalchemy.orm import Session

    async with asyncpg.create_pool(database.direct_url, min_size=1, max_size=1) as pool:
        with pytest.raises(WrongConnection, match=r"async with pool\.acquire\(\) as conn"):
            await work.using(conn=pool.acquire()).aenqueue()
    with Session() as session, pytest.raises(WrongConnection, match=r"Session\(engine\)"):
        work.using(conn=session).enqueue()
    async with AsyncSession() as later:
        with pytest.raises(WrongConnection, match=r"Session\(engine\)"):
            await work.using(conn=later).aenqueue()
    assert app.jobs() == []


@pytest.mark.kinds("sqlite")
def test_a_connection_to_another_file_is_refused(
    app: Outlast, work: Any, database: Database, tmp_path: Path
) -> None:
    """R221: although it has our tables; by sqlite3 and SQLAlchemy. Our own by any name is taken."""
    from sqlalchemy import create_engine

    other, link = tmp_path / "other.db", tmp_path / "link.db"
    with Outlast(f"sqlite:///{other}") as elsewhere:
        elsewhere.migrate()
    link.symlink_to(database.path)
    engine = create_engine(f"sqlite:///{other}")
    with engine.connect() as alchemy, closing(sqlite3.connect(other)) as plain:
        with closing(sqlite3.connect(":memory:")) as memory:
            for connection in (alchemy, plain, memory):
                with pytest.raises(WrongConnection, match="commit together in one database"):
                    work.using(conn=connection).enqueue()
        plain.execute("ATTACH ? AS ours", (str(database.path),))
        with pytest.raises(WrongConnection):
            work.using(conn=plain).enqueue()  # the tables of the main file would be meant
    engine.dispose()
    assert app.jobs() == []
    with closing(sqlite3.connect(link)) as ours, closing(sqlite3.connect(":memory:")) as memory:
        work.using(conn=ours).enqueue()
        ours.commit()
        memory.execute("ATTACH ? AS ours", (str(database.path),))
        work.using(conn=memory).enqueue()
        memory.commit()
    assert len(app.jobs()) == 2


@pytest.mark.kinds("postgres", "pgbouncer")
async def test_a_connection_to_another_database_is_refused(
    app: Outlast, work: Any, database: Database
) -> None:
    """R221: by psycopg, asyncpg and SQLAlchemy; whoever comes another way to ours is taken."""
    import asyncpg
    import psycopg
    from sqlalchemy import create_engine

    base = database.direct_url.rpartition("/")[0]
    with psycopg.connect(database.direct_url, autocommit=True) as admin:
        admin.execute("DROP DATABASE IF EXISTS beside")
        admin.execute("CREATE DATABASE beside TEMPLATE template0")
    there = f"{base}/beside"
    with Outlast(there, schema=database.schema) as elsewhere:
        elsewhere.migrate()
    engine = create_engine(there.replace("postgresql:", "postgresql+psycopg:"))
    with psycopg.connect(there) as plain, engine.connect() as alchemy:
        for connection in (plain, alchemy):
            with pytest.raises(WrongConnection, match="leads to the database 'beside' at "):
                work.using(conn=connection).enqueue()
    engine.dispose()
    away = await asyncpg.connect(there)
    with pytest.raises(WrongConnection, match="leads to the database 'beside' at "):
        await work.using(conn=away).aenqueue()
    await away.close()
    assert app.jobs() == []
    spelled = database.direct_url.replace("127.0.0.1", "localhost")
    with psycopg.connect(spelled) as near, psycopg.connect(database.direct_url) as direct:
        for connection in (near, direct):
            for _ in range(2):
                work.using(conn=connection).enqueue()
            connection.commit()
    assert len(app.jobs()) == 4
    with psycopg.connect(database.direct_url, autocommit=True) as admin:
        admin.execute("DROP DATABASE beside WITH (FORCE)")


@pytest.mark.kinds("postgres")
def test_a_known_connection_is_not_asked_again(app: Outlast, work: Any, database: Database) -> None:
    """R221: one statement for an enqueue, as ever: no further round trip."""
    import psycopg

    said: list[str] = []

    class Counting(psycopg.Cursor[Any]):
        def execute(self, query: Any, *args: Any, **kwargs: Any) -> Any:
            said.append(str(query))
            return super().execute(query, *args, **kwargs)

    with psycopg.connect(database.direct_url, cursor_factory=Counting) as connection:
        real = psycopg.Cursor
        psycopg.Cursor = Counting  # type: ignore[misc]
        try:
            work.using(conn=connection).enqueue()
        finally:
            psycopg.Cursor = real  # type: ignore[misc]
    assert not any("pg_control_system" in one for one in said), said


@pytest.mark.kinds("postgres")
def test_every_kind_of_psycopg_cursor_and_row_works(
    app: Outlast, work: Any, database: Database
) -> None:
    """R221: raw and client-side cursors, rows as dicts, tuples, scalars and classes."""
    import psycopg
    from psycopg import rows

    kinds: list[dict[str, Any]] = [
        {"cursor_factory": psycopg.RawCursor}, {"cursor_factory": psycopg.ClientCursor},
        {"cursor_factory": psycopg.RawCursor, "autocommit": True}, {"row_factory": rows.dict_row},
        {"row_factory": rows.namedtuple_row}, {"row_factory": rows.scalar_row},
        {"row_factory": rows.class_row(dict)}, {"prepare_threshold": 0},
    ]  # fmt: skip
    for kind in kinds:
        with psycopg.connect(database.direct_url, **kind) as connection:
            work.using(conn=connection).enqueue(1)
            app.enqueue(work.job(2), work.using(key=repr(kind)).job(3), conn=connection)
    assert len(app.jobs()) == 3 * len(kinds)


@pytest.mark.kinds("sqlite")
def test_any_text_factory_works(app: Outlast, work: Any, database: Database) -> None:
    """R221: text as bytes, or as anything; and it is left as it was."""
    for factory in (bytes, bytearray, lambda text: text.decode().upper()):
        with closing(sqlite3.connect(database.path)) as connection:
            connection.text_factory = factory
            job = work.using(conn=connection, key=repr(factory)[:40]).enqueue(1)
            again = work.using(conn=connection, key=repr(factory)[:40]).enqueue(1)
            assert (job.id, connection.text_factory) == (again.id, factory)
            connection.commit()
    assert len(app.jobs()) == 3


@pytest.mark.kinds("sqlite", "postgres")
def test_a_drivers_errors_come_out_as_ours(app: Outlast, work: Any, database: Database) -> None:
    """R221: closed connections, failed transactions, missing tables; the driver's is the cause."""
    from sqlalchemy import create_engine, text

    if database.is_sqlite:
        closed = sqlite3.connect(database.path)
        closed.close()
    else:
        import psycopg

        closed = psycopg.connect(database.direct_url)
        closed.close()
    with pytest.raises(WrongConnection, match="is closed") as told:
        work.using(conn=closed).enqueue()
    assert told.value.__cause__ is not None
    engine = create_engine(alchemy_url(database, "psycopg", "pysqlite"))
    with engine.connect() as connection:
        if not database.is_sqlite:
            with pytest.raises(Exception, match="zero"):
                connection.execute(text("SELECT 1/0"))
            with pytest.raises(StoreError, match="roll it back"):
                work.using(conn=connection).enqueue()
        connection.rollback()
        table = "outlast_job" if database.is_sqlite else f'"{database.schema}".job'
        connection.execute(text(f"ALTER TABLE {table} RENAME TO gone"))
        with pytest.raises(SchemaMismatch) as missing:
            work.using(conn=connection).enqueue()
        assert missing.value.__cause__ is not None
        connection.rollback()
    with pytest.raises(WrongConnection, match="is closed"):
        work.using(conn=connection).enqueue()
    engine.dispose()


@pytest.mark.kinds("postgres")
async def test_errors_of_asyncpg_come_out_as_ours(
    app: Outlast, work: Any, database: Database
) -> None:
    """R221: the same for an asyncio driver."""
    import asyncpg

    connection = await asyncpg.connect(database.direct_url)
    async with connection.transaction():
        await connection.execute(f'ALTER TABLE "{database.schema}".job RENAME TO gone')
        with pytest.raises(SchemaMismatch) as missing:
            await work.using(conn=connection).aenqueue()
        assert isinstance(missing.value.__cause__, asyncpg.PostgresError)
        raise_away = connection.execute("ROLLBACK")
        await raise_away
    busy = asyncio.create_task(connection.execute("SELECT pg_sleep(0.2)"))
    await asyncio.sleep(0)
    with pytest.raises(WrongConnection, match="another operation is in progress"):
        await work.using(conn=connection).aenqueue()
    await busy
    await connection.close()
    with pytest.raises(WrongConnection, match="is closed"):
        await work.using(conn=connection).aenqueue()


def test_what_a_driver_says_is_mapped_by_its_code() -> None:
    """R221: one table for every driver of PostgreSQL; a connection that cannot be used now is not
    a database that cannot be reached."""
    import asyncpg
    import psycopg
    from django.db.transaction import TransactionManagementError
    from sqlalchemy.exc import PendingRollbackError

    for error, ours in {
        asyncpg.SerializationError("x"): Contention, asyncpg.QueryCanceledError("x"): StoreBusy,
        asyncpg.UndefinedTableError("x"): SchemaMismatch,
        asyncpg.AdminShutdownError("x"): StoreUnavailable,
        sqlite3.IntegrityError("x"): StoreError,
        TransactionManagementError("until the end of the 'atomic' block."): WrongConnection,
        PendingRollbackError("rolled back due to a previous exception"): WrongConnection,
        psycopg.ProgrammingError("forbidden within a Transaction context"): WrongConnection,
        psycopg.OperationalError("server closed the connection"): StoreUnavailable,
    }.items():  # fmt: skip
        with pytest.raises(ours), translate_caller_errors():
            raise error
    with pytest.raises(KeyError), translate_caller_errors():
        raise KeyError("not the database's")
    assert suggestion_for(object()) is None
