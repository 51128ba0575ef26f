"""The cost of claims, look-ups and retention with many archived jobs."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from outlast.ops import archive, report
from outlast.ops.archive import DAY_S, _spans, partition_name
from outlast.ops.claim import ClaimRequest
from outlast.store import Store
from outlast.store.postgres.paramstyle import psycopg_text
from tests.store.jobs import put
from tests.support import Database

DAYS = 30
MOST = 1.5  # times the cost with nothing archived
MAX_LOCK_S = 1.0
MAX_PAGES = 20  # of a look-up of an archived job: some partitions around the day of its making

# Rows as the move leaves them; their ids are UUIDv7 of the time at which they were made.
FILL = """
    INSERT INTO past (id, tenant, queue, task, args, state, priority, run_at, attempt, max_attempts,
        max_crashes, fence, worker, result, created_at, started_at, finished_at)
    SELECT (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7'
            || substr(md5(n::text), 1, 3) || '8' || substr(md5(n::text), 4, 15))::uuid,
        'default', 'default', 'work', '{"account": 7, "name": "monthly"}', 'succeeded', 0, at, 1, 3,
        3, 1, 'w1', '{"rows": 12}', at, at, at
    FROM (SELECT n,
            to_timestamp(%(day)s * 86400) + n * interval '1 second' * 80000 / %(number)s AS at
        FROM generate_series(1, %(number)s) AS n) AS made
"""
COUNT = """
    INSERT INTO past_count (day, tenant, queue, task, number)
    VALUES ((to_timestamp(%(day)s * 86400) AT TIME ZONE 'UTC')::date, 'default', 'default', 'work',
        %(number)s)
"""


def fill(store: Store, database: Database, kept: int) -> int:
    """So many archived jobs in thirty days; returns the first day."""
    assert store.partitions is not None
    first = int(time.time()) // DAY_S - DAYS - 2
    with database.connect() as connection:
        for day in range(first, first + DAYS):
            store.partitions.create(day)
            given = {"day": day, "number": kept // DAYS}
            connection.execute(FILL, given)
            connection.execute(COUNT, given)
        connection.execute("VACUUM (ANALYZE) past")
    return first


def pages(database: Database, store: Store, name: str, **params: Any) -> int:
    """The pages that a statement reads: what it costs, whatever else the machine does."""
    query = psycopg_text(store.queries[name])
    with database.connect() as connection, connection.transaction(force_rollback=True):
        for setting in ("seqscan", "bitmapscan", "sort"):  # as a worker's own connection
            connection.execute(f"SET LOCAL enable_{setting} = off")
        rows = connection.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query}", params)
        plan = rows.fetchone()[0][0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def drop_first(store: Store, first: int) -> float:
    """Drop a day; returns the seconds that all of it took, which bound those of its locks."""
    assert store.partitions is not None
    began = time.perf_counter()
    store.partitions.drop(partition_name(first))
    return time.perf_counter() - began


@pytest.mark.campaign
@pytest.mark.kinds("postgres")
@pytest.mark.timeout(3600)  # of which most is the filling
@pytest.mark.parametrize("kept", [1_000_000, 10_000_000])
def test_many_archived_jobs_cost_claims_and_look_ups_nothing(
    store: Store, database: Database, kept: int
) -> None:
    """R249: claims and look-ups by id read at most 1.5 times the pages that they read with an empty
    archive; the drop of a day takes less than a second."""
    ended, *_ = put(store.run, 2000)
    everyone = {"tenant": None, "queues": None}

    def costs() -> dict[str, int]:
        asked = ClaimRequest("w1", "default", 10, 60.0).statements()[-1]
        return {
            "claim": pages(database, store, asked.name, **asked.bind),
            "job": pages(database, store, "job", id=ended.id, **everyone),
        }

    with database.connect() as connection:
        connection.execute("VACUUM (ANALYZE) job")
    before = costs()
    first = fill(store, database, kept)
    after = costs()
    query = f"SELECT id::text FROM {partition_name(first + 9)} LIMIT 1"
    [(archived,)] = database.rows(query)
    low, high = next(_spans([archived]))
    found = {"ids": json.dumps([archived]), "low": low, "high": high}
    after["archived job"] = pages(database, store, "past_job", **found, **everyone)
    assert store.run(report.job, archived).state == "succeeded"
    dropped = drop_first(store, first)
    print(
        f"\n{kept:,} kept: pages before {before}, after {after}; a day dropped in {dropped:.2f} s"
    )
    for name, cost in before.items():
        assert after[name] <= MOST * cost, (name, before, after)
    assert after["archived job"] <= MAX_PAGES
    assert dropped <= MAX_LOCK_S
    assert store.run(archive.archive_state).jobs == (DAYS - 1) * (kept // DAYS)
