"""Remote workers and schedules: the service fires them, for the tasks of connected workers."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from outlast import Context, Outlast
from outlast.model.schedule import tick_of_key
from tests.remote.test_worker import working
from tests.service.serving import Served
from tests.support import aeventually


async def test_the_service_fires_for_remote_workers_and_their_jobs_know_their_ticks(
    served: Served, ol: Outlast, tmp_path: Path
) -> None:
    """R234"""
    seen: dict[str, datetime | None] = {}

    @ol.task
    async def report(ctx: Context) -> None:
        seen[ctx.job.id] = ctx.tick

    ol.create_schedule("often", report.job(), every=1, overlap="allow")
    async with working(served, tmp_path):
        await aeventually(lambda: len(seen) >= 2, 60.0)
    jobs = {job.id: tick_of_key(job.key) for job in await ol.ajobs(limit=1000)}
    assert all(tick is not None and tick == jobs[id] for id, tick in seen.items())
    assert len(set(seen.values())) == len(seen)
