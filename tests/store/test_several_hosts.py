"""Every part, and every kind of a caller's connection, with several hosts, of which the first is of
no use: dead, or read-only as a standby is."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import pytest

from outlast import Context, Outlast
from outlast.model.errors import StoreUnavailable
from outlast.model.settings import StoreSettings
from outlast.store import open_store
from outlast.store.postgres.store import PostgresStore
from tests.service.serving import serving
from tests.store.django_connection import configure
from tests.support import Database, aeventually
from tests.support.app import SLACK
from tests.support.several_hosts import DEAD_PORT, FIRST_HOSTS, first_port, with_first_host

pytestmark = pytest.mark.kinds("postgres")


@pytest.fixture(params=FIRST_HOSTS)
def port(request: pytest.FixtureRequest) -> int:
    """That of the first host."""
    return first_port(request.param, request)


@pytest.fixture
def url(database: Database, port: int) -> str:
    return with_first_host(database, port)


@pytest.fixture
def far(database: Database, url: str) -> Iterator[Outlast]:
    with Outlast(url, schema=database.schema) as ol:
        yield ol


# Parts


@pytest.mark.fresh
def test_tables_are_made_and_jobs_added_at_the_primary(far: Outlast) -> None:
    assert far.migrate()
    job = far.task(name="add")(_add).enqueue(n=1)
    assert far.job(job.id).state == "ready"


async def test_a_worker_claims_listens_and_lends_connections_at_the_primary(
    far: Outlast, database: Database
) -> None:
    """With its liveness lock, news that need no poll, and handlers' own transactions."""

    @far.task
    def note(text: str, ctx: Context) -> None:
        with ctx.completing(text) as connection:
            connection.execute("SELECT 1")

    @far.task
    async def anote(text: str, ctx: Context) -> None:
        async with ctx.completing(text) as connection:
            await connection.execute("SELECT 1")

    async with far.worker(poll_max=60.0) as worker:
        await far.aresult((await note.aenqueue(text="first")).id, timeout=20)
        await aeventually(lambda: worker.leases.leases.store.holds_liveness_lock)
        woken = worker.counts["woken"]
        for task in (note, anote):
            job = await task.aenqueue(text="done")
            assert await far.aresult(job.id, timeout=20) == "done"
        assert worker.counts["woken"] > woken


async def test_the_service_listens_for_events_at_the_primary(far: Outlast) -> None:
    heard = asyncio.Event()
    listening = asyncio.create_task(far.store.listen_for_events(heard.set, 1.0))
    await asyncio.wait_for(heard.wait(), 20)
    listening.cancel()
    with suppress(asyncio.CancelledError):
        await listening


def test_the_service_uses_the_primary(far: Outlast) -> None:
    with serving(far) as served:
        token = served.token("enqueue", "read")
        made = served.post("/api/v1/jobs", token, json={"task": "add", "args": {"n": 1}})
        assert made.status_code == 201, made.text
        assert served.get(f"/api/v1/jobs/{made.json()['id']}", token).status_code == 200


def test_without_a_primary_among_them_the_hosts_are_unavailable(
    database: Database, read_only_postgres: Any
) -> None:
    """Not read from, either: what a standby says may be of yesterday."""
    hosts = f"127.0.0.1:{DEAD_PORT},127.0.0.1:{read_only_postgres.port}"
    url = f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write"
    with Outlast(url) as ol, pytest.raises(StoreUnavailable, match="read-only"):
        ol.counts()


@pytest.mark.parametrize(
    ("hosts", "seconds"), [("db", 5), ("a,b,c", 5), ("a,b,c,d", 3), ("a:1,b:2,c,d,e,f,g,h", 2)]
)
def test_hosts_that_do_not_answer_share_the_deadline(hosts: str, seconds: int) -> None:
    """By default a host has 5 s, and a call 15 s."""
    store = open_store(f"postgresql://{hosts}/x")
    assert isinstance(store, PostgresStore)
    assert store._parameters()["connect_timeout"] == seconds
    own = open_store(f"postgresql://{hosts}/x?connect_timeout=7")
    assert isinstance(own, PostgresStore)
    assert "connect_timeout" not in own._parameters(), "the URL's counts"


@pytest.mark.slow
def test_a_call_ends_in_time_though_no_host_answers() -> None:
    with ExitStack() as stack:
        silent = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(4)]
        hosts = ",".join(f"127.0.0.1:{one.getsockname()[1]}" for one in silent)
        settings = StoreSettings.of(deadline=8.0)
        ol = stack.enter_context(Outlast(f"postgresql://{hosts}/x", settings=settings))
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            ol.counts()
        assert time.monotonic() - began < 8.0 + SLACK


# Callers


def _add(n: int) -> int:
    return n + 1


@contextmanager
def psycopg_connection(url: str, port: int) -> Iterator[Any]:
    import psycopg

    with psycopg.connect(url) as connection:
        yield connection


@contextmanager
def sqlalchemy_session(url: str, port: int) -> Iterator[Any]:
    from sqlalchemy import create_engine
    from sqlalchemy.orm import Session

    engine = create_engine(
        alchemy_url("psycopg", url, f"host=127.0.0.1,127.0.0.1&port={port},{port_of(url)}")
    )
    with Session(engine) as session, session.begin():
        yield session
    engine.dispose()


@contextmanager
def django_connection(url: str, port: int) -> Iterator[Any]:
    from django.db import connections, transaction
    from django.db.utils import DEFAULT_DB_ALIAS

    configure()
    connections.close_all()
    entry = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "postgres",
        "USER": "postgres",
        "HOST": "127.0.0.1,127.0.0.1",
        "PORT": f"{port},{port_of(url)}",
        "OPTIONS": {"target_session_attrs": "read-write"},
    }
    connections.settings = connections.configure_settings({DEFAULT_DB_ALIAS: entry})
    connections[DEFAULT_DB_ALIAS] = connections.create_connection(DEFAULT_DB_ALIAS)
    with transaction.atomic():
        yield connections[DEFAULT_DB_ALIAS]
    connections.close_all()


@pytest.mark.parametrize("opened", [psycopg_connection, sqlalchemy_session, django_connection])
def test_a_job_commits_with_a_caller_that_found_the_primary(
    opened: Any, far: Outlast, url: str, port: int
) -> None:
    add = far.task(name="add")(_add)
    with opened(url, port) as connection:
        job = add.using(conn=connection).enqueue(n=1)
    assert far.job(job.id).state == "ready"


@asynccontextmanager
async def psycopg_async_connection(url: str, port: int) -> AsyncIterator[Any]:
    import psycopg

    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield connection


@asynccontextmanager
async def asyncpg_connection(url: str, port: int) -> AsyncIterator[Any]:
    import asyncpg

    connection = await asyncpg.connect(url)
    async with connection.transaction():
        yield connection
    await connection.close()


@asynccontextmanager
async def sqlalchemy_async_session(url: str, port: int) -> AsyncIterator[Any]:
    from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

    hosts = f"host=127.0.0.1:{port}&host=127.0.0.1:{port_of(url)}"
    engine = create_async_engine(alchemy_url("asyncpg", url, hosts))
    async with AsyncSession(engine) as session, session.begin():
        yield session
    await engine.dispose()


@pytest.mark.parametrize(
    "opened", [psycopg_async_connection, asyncpg_connection, sqlalchemy_async_session]
)
async def test_a_job_commits_with_an_asyncio_caller_that_found_the_primary(
    opened: Any, far: Outlast, url: str, port: int
) -> None:
    add = far.task(name="add")(_add)
    async with opened(url, port) as connection:
        job = await add.using(conn=connection).aenqueue(n=1)
    assert (await far.ajob(job.id)).state == "ready"


def port_of(url: str) -> int:
    """That of the second host, which is the primary."""
    hosts = urlsplit(url).netloc.rpartition("@")[2]
    return int(hosts.rpartition(":")[2])


def alchemy_url(driver: str, url: str, hosts: str) -> str:
    return f"postgresql+{driver}://postgres@/postgres?{hosts}&target_session_attrs=read-write"
