"""A worker holds on to what it runs, whoever else has some of it in hand at that moment."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from outlast.model.settings import StoreSettings
from outlast.ops.reclaim import reclaim
from outlast.ops.renew import renew
from outlast.store import Store, open_store
from tests.store.conftest import Run
from tests.store.jobs import column, end, end_leases, put, take
from tests.support import Database
from tests.support.databases import KINDS

pytestmark = pytest.mark.kinds(*KINDS)


@pytest.fixture
def hasty(database: Database, store: Store) -> Iterator[Run]:
    """A worker that would rather not wait for a lock."""
    settings = StoreSettings(lock_timeout=0.2, statement_timeout=2.0)
    opened = open_store(database.url, database.schema, settings)
    yield opened.run
    opened.close()


def test_what_is_kept_what_is_lost_and_what_we_forgot(run: Run, database: Database) -> None:
    """R030: lost is what ended, what somebody else has, and what never was; by id and fence."""
    put(run, 5)
    kept, ended, taken, forgotten, other = take(run, 5)
    end(run, ended)
    end_leases(database, f"id = '{taken.id}'")
    assert run(reclaim).healed == 1
    take(run, worker="w2")
    held = {one.id: one.fence for one in (kept, ended, taken)} | {other.id: other.fence + 1}
    renewed = run(renew, "w1", held, 60.0)
    assert renewed.kept == {kept.id}
    assert renewed.lost == {ended.id, taken.id, other.id}
    assert renewed.busy == frozenset()
    assert {one.id for one in renewed.unknown_claims} == {forgotten.id, other.id}


@pytest.mark.kinds("postgres", "pgbouncer")
def test_a_row_that_somebody_holds_delays_no_other(
    hasty: Run, store: Store, database: Database
) -> None:
    """R029, R034: it is not renewed now, and it is not lost; all the others are renewed. Once it
    was let go, it is renewed again, or found to be lost."""
    put(store.run, 3)
    first, second, third = take(store.run, 3, lease=30.0)
    held = {one.id: one.fence for one in (first, second, third)}
    before = column(database, "lease_until")
    with database.connect() as connection, connection.transaction():
        lock = "SELECT 1 FROM job WHERE id IN (%s, %s) FOR UPDATE"
        connection.execute(lock, (first.id, second.id))
        connection.execute("UPDATE job SET fence = fence + 1 WHERE id = %s", (second.id,))
        renewed = hasty(renew, "w1", held, 60.0)
        assert (renewed.kept, renewed.lost) == ({third.id}, frozenset())
        assert renewed.busy == {first.id, second.id}
        assert renewed.unknown_claims == []
    after = column(database, "lease_until")
    assert (after[:2], after[2] > before[2]) == (before[:2], True)
    renewed = hasty(renew, "w1", held, 60.0)
    assert (renewed.kept, renewed.lost) == ({first.id, third.id}, {second.id})
