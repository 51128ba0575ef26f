"""PostgreSQL believes that there are hardly any jobs, as it does for a while after a purge."""

from __future__ import annotations

import time

import pytest

from outlast.model.flow import chain
from outlast.ops import job_actions
from outlast.store import Store
from tests.store.flowing import call, calls, lay
from tests.support import Database

NUMBER = 3_000
BOUND = 3.0  # seconds; one after the other it takes some hundredths, all with all it takes minutes


@pytest.mark.fresh
@pytest.mark.kinds("postgres")
def test_who_comes_after_others_is_tied_by_their_keys_whatever_the_statistics_say(
    store: Store, database: Database
) -> None:
    """R097: a plan that reads all jobs for each of them would last longer than any timeout."""
    lay(store.run, *calls(NUMBER))
    standing = lay(store.run, chain(*calls(NUMBER)))
    with database.connect() as connection:
        for table in ("job", "edge"):
            connection.execute(
                f"ALTER TABLE {database.schema}.{table} SET (autovacuum_enabled = off)"
            )
        connection.execute(
            "UPDATE pg_class SET reltuples = 1, relpages = pg_relation_size(oid) / 8192"
            f" WHERE relkind IN ('r', 'i') AND relnamespace = '{database.schema}'::regnamespace"
        )
    began = time.monotonic()
    lay(store.run, call(1, after=standing[-1], when="finished"))
    lay(store.run, call(2, after=standing[-300:]))
    assert time.monotonic() - began < BOUND
    began = time.monotonic()
    store.run(job_actions.cancel, standing[0].id, "test", "")  # which ends all that come after it
    assert time.monotonic() - began < BOUND * 3
