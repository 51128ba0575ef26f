"""`ol.bind(session)`: an enqueue without `conn` belongs to the transaction around it."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from outlast import InvalidSetting, Outlast
from outlast.model.service_key import service_key
from outlast.model.signal_link import KEY_PURPOSE, PATH, is_signed
from outlast.ops.signal_links import signing_secret
from tests.support import Database


def engine_url(database: Database, driver: str) -> str:
    return database.direct_url.replace("postgresql://", f"postgresql+{driver}://")


@pytest.fixture
def engine(database: Database) -> Iterator[Any]:
    url = f"sqlite:///{database.path}" if database.is_sqlite else engine_url(database, "psycopg")
    made = sqlalchemy.create_engine(url)
    yield made
    made.dispose()


def test_an_enqueue_joins_the_session_that_is_bound(ol: Outlast, engine: Any) -> None:
    """R002: rolled back with it, committed with it; a cancel, too; and apart again afterwards."""
    noop = ol.task(lambda: None, name="noop")
    with Session(engine) as session:
        with ol.bind(session):
            noop.enqueue()
        session.rollback()
        assert ol.jobs() == []
        with ol.bind(session):
            kept = noop.enqueue()
        session.commit()
        with ol.bind(session):
            ol.cancel(kept.id)
        session.rollback()
        assert [job.state for job in ol.jobs()] == ["ready"]
        with ol.bind(session), Session(engine) as inner, ol.bind(inner):
            noop.enqueue()
            inner.rollback()
    apart = noop.enqueue()
    assert {job.id for job in ol.jobs()} == {kept.id, apart.id}


def test_signals_and_their_links_join_too(ol: Outlast, engine: Any) -> None:
    """R002: also for a job that only this transaction knows."""
    noop = ol.task(lambda: None, name="noop")
    with Session(engine) as session, ol.bind(session):
        job = noop.enqueue()
        ol.signal(job.id, "go")
        ol.signal_link(job, "go", True)
        session.commit()
        ol.signal_link(job, "stop", True)
        session.rollback()
    assert [one.name for one in ol.signal_links(job)] == ["go"]


@pytest.mark.kinds("postgres")
@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ"])
def test_the_first_link_of_a_transaction_holds_up_nobody(
    ol: Outlast, database: Database, isolation: str
) -> None:
    """R002, R198: the secret that signs all links is not part of the first caller's transaction:
    other first callers do not wait for it, and it stays when that transaction is rolled back."""
    job = ol.task(lambda: None, name="noop").enqueue()
    with psycopg.connect(database.url) as first, psycopg.connect(database.url) as second:
        for caller in (first, second):
            caller.execute(f"SET TRANSACTION ISOLATION LEVEL {isolation}")
            caller.execute("SET LOCAL lock_timeout = '1s'")
            caller.execute("SELECT 1 FROM pg_class").fetchone()  # takes its snapshot
        undone = ol.signal_link(job, "go", True, conn=first)
        kept = ol.signal_link(job, "stop", True, conn=second)
        second.commit()
        first.rollback()
    key = service_key(ol.store.run(signing_secret), KEY_PURPOSE)
    assert all(is_signed(key, link.path.removeprefix(PATH)) for link in (undone, kept))
    assert [one.name for one in ol.signal_links(job)] == ["stop"]


@pytest.mark.kinds("postgres")
async def test_an_async_session_is_joined_by_async_verbs(ol: Outlast, database: Database) -> None:
    noop = ol.task(lambda: None, name="noop")
    engine = create_async_engine(engine_url(database, "psycopg"))
    async with AsyncSession(engine) as session:
        with ol.bind(session):
            await noop.aenqueue()
        await session.rollback()
        assert await ol.ajobs() == []
        with ol.bind(session):
            await noop.aenqueue()
        await session.commit()
    await engine.dispose()
    assert len(await ol.ajobs()) == 1


async def test_a_task_that_outlives_the_bind_commits_its_own_jobs(
    ol: Outlast, database: Database
) -> None:
    """R001: a task that a request has started keeps a copy of the request's context. The session
    is over by then, and would take the job with it."""
    driver = "sqlite+aiosqlite" if database.is_sqlite else "postgresql+psycopg"
    place = f"/{database.path}" if database.is_sqlite else database.direct_url.split("//", 1)[1]
    engine, noop = create_async_engine(f"{driver}://{place}"), ol.task(lambda: None, name="noop")
    answered = asyncio.Event()

    async def audit() -> None:
        await answered.wait()
        await noop.aenqueue()

    async with AsyncSession(engine) as outer, AsyncSession(engine) as session:
        with ol.bind(outer):
            with ol.bind(session):
                late = asyncio.create_task(audit())
            nested = asyncio.create_task(noop.aenqueue())
            await nested
            await outer.rollback()  # of an open one, all the same
    answered.set()
    await late
    await engine.dispose()
    assert len(await ol.ajobs()) == 1


@pytest.mark.kinds("sqlite")
@pytest.mark.parametrize("ambient", ["warn", "off"])
def test_warn_and_off_commit_apart(database: Database, ambient: Any) -> None:
    """`warn` says so, once."""
    with Outlast(database.url, ambient=ambient) as ol, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        noop = ol.task(lambda: None, name="noop")
        with ol.bind(object()):
            noop.enqueue()
            noop.enqueue()
        assert len(ol.jobs()) == 2
    assert [one.category for one in told] == ([RuntimeWarning] if ambient == "warn" else [])


def test_another_word_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="must be one of join, warn and off, not 'yes'"):
        Outlast("sqlite:///x.db", ambient="yes")  # type: ignore[arg-type]
