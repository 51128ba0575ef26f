"""Two want the same row at the same moment: one wins, the other is told, nothing is half done."""

from __future__ import annotations

import random
from collections import Counter
from urllib.parse import quote

import pytest

from outlast import TooLate
from outlast.model.claim import Claim
from outlast.ops import job_actions
from outlast.ops.finish import Finished, finish
from outlast.ops.reclaim import reclaim
from outlast.ops.renew import renew
from outlast.ops.report import Filter, history, jobs
from outlast.store import Store, open_store
from tests.store.crowd import all_at_once, race
from tests.store.jobs import (
    end,
    end_leases,
    ending,
    put,
    put_and_take,
    set_all,
    states,
    table,
    take,
)
from tests.support import Database, Postgres

pytestmark = [pytest.mark.kinds("sqlite", "postgres"), pytest.mark.timeout(600)]


def races(few: int, many: int) -> pytest.MarkDecorator:
    """So many by default, and so many in a campaign."""
    full = pytest.param(many, marks=pytest.mark.campaign)
    return pytest.mark.parametrize("number", [few, full], ids=["sample", "full"])


def cancelled(store: Store, id: str) -> str:
    """What a cancel found: a state, or that it was too late."""
    try:
        return str(store.run(job_actions.cancel, id, "ann", "").state)
    except TooLate:
        return "too late"


@races(250, 1000)
def test_cancel_against_claim_ends_one_way(store: Store, database: Database, number: int) -> None:
    """R114: cancelled and never claimed, or running and asked to stop (1,000 in a campaign)."""
    ids = [one.id for one in put(store.run, number)]
    claims: list[Claim] = []
    found, _ = race(
        number,
        lambda n: cancelled(store, ids[n]),
        lambda n: claims.extend(take(store.run, 1 + n % 2)),
    )
    assert Counter(found).keys() == {"cancelled", "running"}, "no race without both"
    running = {one.id for one in claims}
    for id, seen, state in zip(ids, found, states(database), strict=True):
        assert state == seen == ("running" if id in running else "cancelled")


@races(250, 1000)
def test_cancel_against_finish_ends_one_way(store: Store, database: Database, number: int) -> None:
    """R118: 1,000 races in a campaign: a success is a success with its result; the cancel is told
    which."""
    put(store.run, number)
    held = take(store.run, number)
    ends = [
        ending(one, result="1") if n % 2 else ending(one, "released") for n, one in enumerate(held)
    ]

    def finished(n: int) -> Finished:
        return store.run(finish, [ends[n]])

    found, answers = race(number, lambda n: cancelled(store, held[n].id), finished)
    assert not any(answer.lost for answer in answers)
    rows = {one.id: one for one in store.run(jobs, Filter(), None, number)}
    for n, one in enumerate(held):
        after = rows[one.id]
        if n % 2:
            assert (after.state, after.result) == ("succeeded", 1)
            assert found[n] in ("running", "too late")
        else:
            assert (after.state, after.result) == ("cancelled", None)
            assert found[n] in ("running", "cancelled")
    assert len(Counter(found)) > 1, "no race without both"


@races(200, 1000)
def test_reclaim_against_finish_has_one_winner(
    store: Store, database: Database, number: int
) -> None:
    """R077: a sweep never overwrites an accepted end, nor a finish a reclaimed job."""
    put(store.run, number)
    held = take(store.run, number)
    end_leases(database)
    accepted, _ = race(
        number,
        lambda n: bool(store.run(finish, [ending(held[n])]).accepted),
        lambda n: store.run(reclaim, 1 + n % 2),
    )
    assert Counter(accepted).keys() == {True, False}, "no race without both"
    store.run(reclaim)
    for won, state in zip(accepted, states(database), strict=True):
        assert state == ("succeeded" if won else "ready")
    crashes = f"SELECT count(*) FROM {table(database, 'attempt')}"
    assert database.rows(crashes) == [(accepted.count(False),)]


@races(200, 1000)
def test_reclaim_against_renew_has_one_winner(
    store: Store, database: Database, number: int
) -> None:
    """R080: a claim that was renewed is never taken back; one that was taken back is never held."""
    put(store.run, number)
    held = take(store.run, number)
    end_leases(database)
    kept, _ = race(
        number,
        lambda n: bool(store.run(renew, "w1", {held[n].id: held[n].fence}, 60.0).kept),
        lambda n: store.run(reclaim, 1 + n % 2),
    )
    assert Counter(kept).keys() == {True, False}, "no race without both"
    for still, state in zip(kept, states(database), strict=True):
        assert state == ("running" if still else "ready")


# What the planner does by itself when the table is large: through the primary key, row by row.
AS_IF_LARGE = "?options=" + quote(
    "-c enable_hashjoin=off -c enable_mergejoin=off -c enable_seqscan=off"
)


@pytest.mark.kinds("postgres")
def test_renewals_and_finishes_of_the_same_jobs_never_deadlock(
    database: Database, postgres_server: Postgres
) -> None:
    """R174: a worker renews from one thread and hands in from another, each in its own order."""
    before = postgres_server.log.read_text(errors="replace").count("deadlock detected")
    store = open_store(database.url + AS_IF_LARGE, database.schema)
    put(store.run, 100)
    held = take(store.run, 100)

    def renewed(n: int) -> None:
        mixed = random.Random(n).sample(held, 100)
        store.run(renew, "w1", {one.id: one.fence for one in mixed}, 60.0)

    def failed(n: int) -> None:
        mixed = random.Random(-n).sample(held, 100)
        store.run(finish, [ending(one, "failed") for one in mixed])
        again = "state = 'running', worker = 'w1', lease_until = now(), failures = 0"
        set_all(database, again)
        database.rows("DELETE FROM attempt")

    race(80, renewed, failed)
    store.close()
    after = postgres_server.log.read_text(errors="replace").count("deadlock detected")
    assert after == before


def test_redrive_at_once_runs_once(store: Store) -> None:
    """R052: ten at once → one new life, one record."""
    held = put_and_take(store.run)
    end(store.run, held, "permanent")
    revived = all_at_once(10, lambda n: store.run(job_actions.redrive, [held.id], f"ann{n}"))
    assert sorted(map(len, revived)) == [0] * 9 + [1]
    assert len(take(store.run, 9)) == 1
    assert [event.kind for event in store.run(history, held.id)[1]] == ["redrive"]
