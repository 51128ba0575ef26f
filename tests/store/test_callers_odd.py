"""Connections in odd states, of the wrong kind, or whose process is killed before its commit."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from outlast import KeyConflict, Outlast, WrongConnection
from tests.store.callers import alchemy_url
from tests.store.django_connection import connection_for
from tests.store.jobs import states
from tests.support import Database, Processes, eventually

pytestmark = pytest.mark.kinds("sqlite", "postgres")


@pytest.fixture
def work(app: Outlast) -> Any:
    @app.task
    def work(n: int = 0) -> None: ...

    app.store.ready()
    return work


def autocommitting(database: Database) -> dict[str, Callable[[], Any]]:
    """Connections that are in no transaction: each statement commits by itself."""
    import psycopg
    from sqlalchemy import create_engine

    def alchemy() -> Any:
        url = alchemy_url(database, "psycopg", "pysqlite")
        return create_engine(url, isolation_level="AUTOCOMMIT").connect()

    if database.is_sqlite:
        plain: Callable[[], Any] = lambda: sqlite3.connect(database.path, isolation_level=None)  # noqa: E731
    else:
        plain = lambda: psycopg.connect(database.direct_url, autocommit=True)  # noqa: E731
    return {"plain": plain, "sqlalchemy": alchemy, "django": lambda: connection_for(database)[1]}


@pytest.mark.parametrize("kind", ["plain", "sqlalchemy", "django"])
@pytest.mark.parametrize("key", [None, "mine"])
def test_without_a_transaction_each_call_is_one(
    app: Outlast, work: Any, database: Database, kind: str, key: str | None
) -> None:
    """R002, R008: committed when the call returns, all or none, and nothing is left open."""
    connection = autocommitting(database)[kind]()
    holder = work.using(key="k").enqueue(1)
    calls = [work.using(key=f"{key}{n}" if key else None).job(n) for n in range(3)]
    app.enqueue(*calls, conn=connection)
    assert len(states(database)) == 4
    with pytest.raises(KeyConflict, match=holder.id):
        app.enqueue(work.job(5), work.using(key="k").job(6), conn=connection)
    assert len(states(database)) == 4
    work.enqueue(7)  # would wait for a lock, if one was left
    connection.close()
    if kind == "sqlalchemy":
        connection.engine.dispose()


@pytest.mark.kinds("sqlite")
@pytest.mark.parametrize("level", ["", "IMMEDIATE", None])
def test_a_refused_call_leaves_no_transaction_where_there_was_none(
    app: Outlast, work: Any, database: Database, level: Any
) -> None:
    """R002: nor a lock that the caller does not know of."""
    work.using(key="k").enqueue(1)
    with closing(sqlite3.connect(database.path, isolation_level=level)) as connection:
        with pytest.raises(KeyConflict):
            work.using(key="k", conn=connection).enqueue(2)
        assert not connection.in_transaction
        work.using(key="other", conn=connection).enqueue(2)
        assert connection.in_transaction == (level is not None), "the caller's to commit"
        connection.rollback()


@pytest.mark.kinds("sqlite")
@pytest.mark.parametrize("kind", ["plain", "sqlalchemy", "django"])
def test_a_row_that_is_refused_takes_its_whole_call_with_it(
    app: Outlast, work: Any, database: Database, kind: str
) -> None:
    """R008: all of a call or none of it, also where nobody began a transaction."""
    database.rows(
        "CREATE TRIGGER unlucky BEFORE INSERT ON outlast_job WHEN new.args LIKE '%13%'"
        " BEGIN SELECT RAISE(ABORT, 'unlucky'); END"
    )
    connection = autocommitting(database)[kind]()
    with pytest.raises(Exception, match="unlucky"):
        app.enqueue(*(work.job(n) for n in (11, 12, 13, 14)), conn=connection)
    assert states(database) == []
    connection.close()
    if kind == "sqlalchemy":
        connection.engine.dispose()


@pytest.mark.kinds("postgres")
async def test_asyncpg_without_a_transaction_commits_each_call(
    app: Outlast, work: Any, database: Database
) -> None:
    import asyncpg

    connection = await asyncpg.connect(database.direct_url)
    await work.using(conn=connection).aenqueue(1)
    await work.using(conn=connection, key="k").aenqueue(2)
    with pytest.raises(KeyConflict):
        await app.aenqueue(work.job(3), work.using(key="k").job(4), conn=connection)
    assert len(states(database)) == 2
    assert not connection.is_in_transaction()
    await connection.close()


@pytest.mark.kinds("postgres")
def test_a_callers_pipeline_carries_jobs(app: Outlast, work: Any, database: Database) -> None:
    """R002: in psycopg's pipeline mode answers come late."""
    import psycopg

    with psycopg.connect(database.direct_url) as connection, connection.pipeline():
        first = work.using(conn=connection).enqueue(1)
        again = work.using(conn=connection, key="k").enqueue(2)
    assert {first.id, again.id} == {one.id for one in app.jobs()}


@pytest.mark.kinds("postgres")
def test_workers_are_woken_by_the_commit_and_not_before(
    app: Outlast, work: Any, database: Database
) -> None:
    """R001, R016: the wake-up travels in the caller's transaction."""
    import psycopg

    with (
        psycopg.connect(database.direct_url, autocommit=True) as listener,
        psycopg.connect(database.direct_url) as connection,
    ):
        listener.execute(f'LISTEN "{app.store.channel}"')
        work.using(conn=connection, queue="docs").enqueue(1)
        assert list(listener.notifies(timeout=0.3)) == []
        connection.commit()
        (news,) = listener.notifies(timeout=10, stop_after=1)
        assert news.payload == "docs"


def test_the_wrong_kind_of_connection_is_refused_with_a_sentence_that_helps(
    app: Outlast, work: Any, database: Database
) -> None:
    """R002: instead of jobs that commit on their own."""
    for thing in ("a string", object(), 7, database):
        with pytest.raises(WrongConnection, match="give a connection or session of sqlite3"):
            work.using(conn=thing).enqueue()
        with pytest.raises(WrongConnection, match="give a connection or session of sqlite3"):
            asyncio.run(work.using(conn=thing).aenqueue())
    assert states(database) == []


@pytest.mark.kinds("postgres")
async def test_the_wrong_colour_of_connection_is_refused_with_the_verb_to_use(
    app: Outlast, work: Any, database: Database
) -> None:
    import asyncpg
    import psycopg
    from sqlalchemy import create_engine
    from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

    engine = create_engine(alchemy_url(database, "psycopg", ""))
    async_engine = create_async_engine(alchemy_url(database, "asyncpg", ""))
    async with (
        await psycopg.AsyncConnection.connect(database.direct_url) as apsycopg,
        AsyncSession(async_engine) as session,
    ):
        plain = await asyncpg.connect(database.direct_url)
        for connection in (apsycopg, session, plain):
            with pytest.raises(WrongConnection, match="use the verb with an a"):
                work.using(conn=connection).enqueue()
        await plain.close()
    await async_engine.dispose()
    with psycopg.connect(database.direct_url) as blocking, engine.connect() as alchemy:
        for connection in (blocking, alchemy):
            with pytest.raises(WrongConnection, match="use the verb without an a"):
                await work.using(conn=connection).aenqueue()
    engine.dispose()
    assert states(database) == []


def test_a_connection_to_the_other_database_is_refused(
    app: Outlast, work: Any, database: Database, postgres_url: Database
) -> None:
    """R002: they can only commit together in one database."""
    import psycopg

    other: Any = (
        psycopg.connect(postgres_url.url) if database.is_sqlite else sqlite3.connect(":memory:")
    )
    with closing(other), pytest.raises(WrongConnection, match="commit together in one database"):
        work.using(conn=other).enqueue()


KILLED = """
    import sys, time
    from outlast import Outlast
    url, schema = sys.argv[1:]
    ol = Outlast(url, schema=schema)

    @ol.task
    def work() -> None: ...

    if url.startswith("sqlite"):
        import sqlite3
        connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    else:
        import psycopg
        connection = psycopg.connect(url, options=f"-c search_path={schema}")
    connection.execute("INSERT INTO business (note) VALUES ('x')")
    work.using(conn=connection, key="k").enqueue()
    work.using(conn=connection).enqueue()
    print("enqueued", flush=True)
    time.sleep(60)
"""


def test_killed_before_its_commit_a_caller_leaves_nothing(
    work: Any, database: Database, processes: Processes
) -> None:
    """R002, R012: 0 jobs and 0 business rows; and its locks are gone with it."""
    database.rows("CREATE TABLE business (note text)")
    process = processes.python(KILLED, database.url, database.schema)
    eventually(lambda: "enqueued" in process.output(), timeout=60, message=process.output)
    assert states(database) == []
    process.kill()
    job = work.using(key="k").enqueue()
    assert states(database) == ["ready"]
    assert database.rows("SELECT count(*) FROM business") == [(0,)]
    assert job.key == "k"
