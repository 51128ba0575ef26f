"""A process that is frozen in the middle of a conversation does not keep its rows from others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from outlast.model.settings import StoreSettings
from outlast.ops.operation import BEGIN, Op, Statement
from outlast.store import open_store
from outlast.store.postgres.store import PostgresStore
from tests.support import Database, aeventually, eventually

pytestmark = pytest.mark.kinds("postgres")

IDLE = 0.3  # seconds


@pytest.fixture
def impatient(database: Database) -> Iterator[PostgresStore]:
    """A store whose server soon ends a transaction in which nothing happens."""
    store = open_store(database.url, database.schema, StoreSettings.of(idle_timeout=IDLE))
    assert isinstance(store, PostgresStore)
    store.ready()
    yield store
    store.close()


def doing(database: Database, pid: int) -> str:
    """What the server says that a session does; nothing if it is gone."""
    rows = database.rows("SELECT state FROM pg_stat_activity WHERE pid = %s", (pid,))
    return rows[0][0] if rows else "gone"


LOCK = "SELECT count(*) FROM (SELECT 1 FROM {}.worker FOR UPDATE) AS w"


def test_what_travels_together_is_begun_when_all_of_it_is_there(
    database: Database, impatient: PostgresStore
) -> None:
    """R030, R063: frozen between two of its statements, it has not said any of them; else the
    server would wait for the rest, with the rows locked, and no timeout of its own would apply."""
    link = impatient._connect()
    with link.pipeline():
        cursor = link.execute(LOCK.format(database.schema))
        time.sleep(IDLE)  # nothing happens, so there is nothing to wait for
        assert doing(database, link.info.backend_pid) == "idle"
        link.execute("SELECT 1")
    assert cursor.fetchall() == [(0,)]
    link.close()


async def test_the_same_on_an_asyncio_connection(
    database: Database, impatient: PostgresStore
) -> None:
    """R030, R063"""
    link = await impatient._aconnect()
    async with link.pipeline():
        cursor = await link.execute(LOCK.format(database.schema))
        await asyncio.sleep(IDLE)
        assert doing(database, link.info.backend_pid) == "idle"
        await link.execute("SELECT 1")
    assert await cursor.fetchall() == [(0,)]
    await link.close()


def test_a_transaction_that_was_left_open_is_ended_by_the_server(
    database: Database, impatient: PostgresStore
) -> None:
    """R030, R063: also after statements that travelled together."""
    link = impatient._connect()
    with link.pipeline():
        link.execute("BEGIN")
        link.execute("SELECT 1")
    assert doing(database, link.info.backend_pid) == "idle in transaction"
    eventually(lambda: doing(database, link.info.backend_pid) == "gone")
    link.close()


async def test_the_same_for_asyncio(database: Database, impatient: PostgresStore) -> None:
    """R030, R063"""
    link = await impatient._aconnect()
    async with link.pipeline():
        await link.execute("BEGIN")
        await link.execute("SELECT 1")
    await aeventually(lambda: doing(database, link.info.backend_pid) == "gone")
    await link.close()


@pytest.mark.parametrize("colour", ["blocking", "asyncio"])
def test_whoever_was_frozen_for_too_long_simply_starts_over(
    database: Database, impatient: PostgresStore, colour: str
) -> None:
    """R033: the server hung up meanwhile; that is a broken connection and no refusal."""
    tries: list[int] = []

    def slow() -> Op[Any]:
        tries.append(1)
        yield BEGIN
        yield Statement("clock")
        if len(tries) == 1:
            time.sleep(3 * IDLE)
        rows = yield Statement("clock")
        return rows

    answer = asyncio.run(impatient.arun(slow)) if colour == "asyncio" else impatient.run(slow)
    assert len(answer) == 1
    assert len(tries) == 2
