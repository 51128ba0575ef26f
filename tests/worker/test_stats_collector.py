"""Who counts what happened: a worker, or the service where none lives; and a zombie's write."""

from __future__ import annotations

import pytest

from outlast import Outlast
from outlast.ops import statistics
from outlast.ops.live_stats import losses
from outlast.ops.report import duties
from tests.service.serving import serving
from tests.support import Database, eventually

pytestmark = pytest.mark.kinds("sqlite")


def test_where_no_worker_lives_the_service_counts(database: Database) -> None:
    with Outlast(database.url, schema=database.schema) as ol:
        ol.migrate()
        with serving(ol) as served:
            served.post("/api/v1/jobs", json={"task": "t"})  # with the first request it starts

            def done() -> bool:
                found = {duty.name: duty for duty in ol.store.run(duties)}
                return "statistics" in found and found["statistics"].succeeded_at is not None

            eventually(done, timeout=10)
            newest, now = ol.store.run(statistics.newest_span)
            assert newest is not None and now - newest < 3 * statistics.SPAN_S


async def test_an_outcome_that_came_too_late_is_on_record(database: Database) -> None:
    """R142: the job is somebody else's by then; that it was refused can be seen."""
    import asyncio

    from tests.store.jobs import set_all

    with Outlast(database.url, schema=database.schema) as ol:
        ol.migrate()
        go, began = asyncio.Event(), asyncio.Event()

        @ol.task
        async def slow() -> None:
            began.set()
            await go.wait()

        job = slow.enqueue()
        async with ol.worker(concurrency=1, reclaim_every=0.1):
            await began.wait()
            set_all(database, "fence = fence + 1", f"id = '{job.id}'")
            go.set()
            for _ in range(100):
                if found := await ol.store.arun(losses, "write-refused"):
                    break
                await asyncio.sleep(0.1)
        assert [(loss.kind, loss.data["job"]) for loss in found] == [("write-refused", job.id)]
