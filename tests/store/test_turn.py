"""Giving back and taking on in one statement: in this order, and told apart from what was sent
before."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from outlast.model.claim import Claim
from outlast.ops.claim import ClaimCursor, ClaimRequest
from outlast.ops.finish_and_claim import finish_and_claim
from outlast.store import Store, open_store
from tests.store.jobs import ending, put, take
from tests.support import Database, aeventually

pytestmark = pytest.mark.kinds("postgres")


def on_from(claim: Claim) -> ClaimRequest:
    place = ClaimCursor(claim.priority, claim.run_at, claim.id)
    return ClaimRequest("w1", "default", 2, 60.0, promote=False, cursor=place)


def test_those_accepted_beside_a_lost_one_were_not_sent_before(store: Store) -> None:
    """R030: who counts what comes twice counts none of them."""
    put(store.run, 3)
    lost, *others = take(store.run, 3)
    sent = [ending(lost._replace(fence=99)), *map(ending, others)]
    finished, _ = store.run(finish_and_claim, sent)
    assert len(finished.accepted) == 2 and len(finished.lost) == 1
    assert finished.duplicates == []


def test_those_that_are_sent_again_are_known(store: Store) -> None:
    """R170: the answer got lost."""
    put(store.run, 3)
    sent = [ending(one) for one in take(store.run, 3)]
    store.run(finish_and_claim, sent)
    finished, _ = store.run(finish_and_claim, sent)
    assert len(finished.accepted) == len(finished.duplicates) == 3


async def test_who_waits_for_what_it_gives_back_holds_nothing_that_it_takes(
    database: Database,
) -> None:
    """R174: else it and somebody who locks in the order of ids would wait for each other."""
    store = open_store(database.url, database.schema)
    put(store.run, 6)
    held = take(store.run, 2)
    steady = store.hot_path_clone()
    job = f'"{database.schema}".job'
    async with await psycopg.AsyncConnection.connect(database.direct_url) as other:
        await other.execute(f"SELECT 1 FROM {job} WHERE id = %s FOR UPDATE", (held[0].id,))
        going = asyncio.create_task(
            steady.arun(finish_and_claim, [*map(ending, held)], on_from(held[0]))
        )
        await aeventually(lambda: _waiting(database))
        unlocked = f"SELECT id FROM {job} WHERE state = 'ready' FOR UPDATE SKIP LOCKED"
        with psycopg.connect(database.direct_url) as third:
            free = third.execute(unlocked).fetchall()
        await other.rollback()
        finished, claims = await going
    assert len(free) == 4, "none of them is locked yet"
    assert len(finished.accepted) == len(claims) == 2
    await steady.aclose()
    store.close()


def _waiting(database: Database) -> bool:
    """Somebody waits for a lock."""
    query = (
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        " AND query LIKE %s AND datname = current_database()"
    )
    return database.rows(query, (f"%{database.schema}%",))[0][0] > 0
