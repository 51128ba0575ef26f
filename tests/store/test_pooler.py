"""Behind a transaction pooler: nothing of a session is used, and nothing is left in one.

The files of each operation run through PgBouncer as well (all tests with `--sweep-pgbouncer`);
these are the promises that make that possible.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from outlast import StoreBusy
from outlast.model.settings import StoreSettings
from outlast.ops.claim import poll
from outlast.ops.enqueue import enqueue
from outlast.ops.finish import finish
from outlast.store import Store, open_store
from outlast.store.dialects import POSTGRES
from outlast.store.statements import queries
from tests.store.crowd import all_at_once
from tests.store.jobs import ending, new, put, states, take
from tests.support import Database, PgBouncer, Postgres, eventually, pgbouncer
from tests.support.databases import postgres_database

pytestmark = pytest.mark.kinds("pgbouncer")

LEFT_BEHIND = """
    SELECT (SELECT count(*) FROM pg_prepared_statements),
        (SELECT count(*) FROM pg_listening_channels()),
        (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'),
        current_setting('statement_timeout'), current_setting('lock_timeout'),
        current_setting('search_path')
"""


def test_a_pooler_is_noticed(store: Store, database: Database) -> None:
    """R172: and a direct connection is not taken for one."""
    assert store.pooled  # type: ignore[attr-defined]
    direct = open_store(database.direct_url, database.schema)
    direct.ready()
    assert not direct.pooled  # type: ignore[attr-defined]
    direct.close()


@pytest.mark.parametrize("colour", ["blocking", "asyncio"])
def test_many_clients_share_few_backends_and_leave_nothing_in_them(
    database: Database, colour: str, postgres_server: Postgres
) -> None:
    """R172: 30 clients on 10 backends; no prepared name clashes (42P05) or is missing (26000)."""
    log = postgres_server.log
    before = log.stat().st_size
    settings = StoreSettings(pool_size=30)
    store = open_store(database.url, database.schema, settings)
    put(store.run, 300)

    def work(n: int) -> int:
        done = 0
        while some := take(store.run, 3, worker=f"w{n}"):
            done += len(store.run(finish, [ending(one, "succeeded") for one in some]).accepted)
        return done

    async def awork(n: int) -> int:
        from outlast.ops.claim import ClaimRequest, claim

        done = 0
        while some := await store.arun(claim, ClaimRequest(f"w{n}", "default", 3, 60.0)):
            ends = [ending(one, "succeeded") for one in some]
            done += len((await store.arun(finish, ends)).accepted)
        return done

    async def all_of_them() -> list[int]:
        try:
            return await asyncio.gather(*map(awork, range(30)))
        finally:
            await store.aclose()

    done = all_at_once(30, work) if colour == "blocking" else asyncio.run(all_of_them())
    store.close()
    assert sum(done) == 300
    assert set(states(database)) == {"succeeded"}
    assert set(_left_behind(database)) == {(0, 0, 0, "0", "0", '"$user", public')}
    said = log.read_bytes()[before:].decode(errors="replace")
    assert "prepared statement" not in said


def test_backends_may_change_at_any_moment(
    store: Store, database: Database, pgbouncer: PgBouncer
) -> None:
    """R169, R172: between any two operations, every server connection is another one."""
    for _ in range(5):
        put(store.run)
        pgbouncer.renew_backends()
        (held,) = take(store.run)
        pgbouncer.renew_backends()
        assert store.run(finish, [ending(held)]).lost == []


@pytest.fixture
def careless(
    postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[PgBouncer, Database]]:
    """A pooler that accepts start-up options and drops them."""
    lenient = f"{pgbouncer.CONFIGURATION}ignore_startup_parameters = options,extra_float_digits\n"
    monkeypatch.setattr(pgbouncer, "CONFIGURATION", lenient)
    pooler = PgBouncer(postgres_server)
    try:
        pooler.start()
        with postgres_database(postgres_server, pooler) as database:
            yield pooler, database
    finally:
        pooler.destroy()


def test_a_pooler_that_drops_our_timeouts_does_not_lose_them(careless: Any) -> None:
    """R172, R175: they are set in every transaction instead."""
    _, database = careless
    patient = open_store(database.url, database.schema)
    patient.run(enqueue, [new()])
    hasty = open_store(database.url, database.schema, StoreSettings(statement_timeout=0.3))
    eventually(lambda: _answers(hasty))
    assert hasty.pooled  # type: ignore[attr-defined]
    slow = replace(hasty.queries["poll"], sql="SELECT NULL FROM pg_sleep(60)")
    hasty.queries = queries(POSTGRES, database.schema).all() | {"poll": slow}
    with pytest.raises(StoreBusy):
        hasty.run(poll)
    assert len(take(patient.run)) == 1
    hasty.close()
    patient.close()


def _answers(store: Store) -> bool:
    """Whether it has found out what it talks to; on a busy machine a statement may be too slow."""
    try:
        store.ready()
    except StoreBusy:
        return False
    return True


def _left_behind(database: Database) -> list[tuple[Any, ...]]:
    """What the sessions that others will use have been left with."""
    found = []
    clients = [psycopg.connect(database.url, prepare_threshold=None) for _ in range(8)]
    for client in clients:  # all in a transaction at once, so each on a backend of its own
        found += client.execute(LEFT_BEHIND).fetchall()
    for client in clients:
        client.close()
    return found
