"""Sync Django jobs while the server cuts all connections of the project, every second."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from outlast import Call, Outlast
from outlast.model.options import Options
from tests.integrations.django.shop import Shop
from tests.support import Database, Processes

CUT = """SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE application_name = %s AND pid <> pg_backend_pid()"""
FAILED = """SELECT error ->> 'type', error ->> 'message' FROM attempt
    WHERE outcome NOT IN ('succeeded', 'released')"""


@pytest.mark.slow
@pytest.mark.kinds("postgres")
@pytest.mark.parametrize("max_age", [0, None])
@pytest.mark.parametrize(
    ("jobs", "every"), [(60, 0.3), pytest.param(1000, 1.0, marks=pytest.mark.campaign)]
)
def test_no_job_fails_on_a_connection_that_was_cut_before_it(
    database: Database, processes: Processes, jobs: int, every: float, max_age: int | None
) -> None:
    """R169: every job succeeds. A handler whose query is cut under it may fail, and is retried;
    none starts with a connection that is closed already."""
    shop = Shop(database, CONN_MAX_AGE=max_age).migrated()
    shop.entry["OPTIONS"] |= {"application_name": database.schema}
    with Outlast(database.url, schema=database.schema) as ol:
        ol.task(lambda number: None, name="place")
        definition = ol.registry["place"]
        ol.enqueue(*(Call(definition, Options(), (), {"number": number}) for number in range(jobs)))
        worker = shop.command("outlast", "worker", "--concurrency", 4)
        process = processes.run(*worker, env=shop.env)
        cuts, until = 0, time.monotonic() + 250
        while ol.counts().get("succeeded", 0) < jobs and time.monotonic() < until:
            time.sleep(every)  # the fault itself: cuts at this pace
            cuts += database.rows(CUT, (database.schema,))[0][0]
        assert ol.counts().get("succeeded") == jobs, process.output()[-3000:]
    failed = Counter(database.rows(FAILED))
    print(f"{jobs} jobs, {cuts} connections cut, attempts that failed: {dict(failed)}")
    assert cuts > 0
    ours = {why: count for why, count in failed.items() if "closed" in str(why[1]).split("\n")[0]}
    assert not {why for why in ours if "server closed" not in str(why[1])}, failed
    rows = database.rows("SELECT count(*), count(DISTINCT number) FROM shop_order WHERE paid")
    assert rows[0][1] == jobs
