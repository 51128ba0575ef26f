"""Worker processes whose clocks are wrong: only the database's clock decides."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from outlast import Job
from tests.support import Database, Processes, aeventually, wrong_clock
from tests.support.app import App

from .working import SLACK, TIMINGS, started, work

WORKER = """
    import sys
    from tests.support.app import from_environment

    from_environment().ol.worker(queues=sys.argv[1:]).run()
    """
LEASE = 10.0  # seconds: a busy machine must not cost a living worker its job


@pytest.mark.kinds("postgres")
@pytest.mark.timeout(240)
async def test_a_wrong_clock_neither_steals_jobs_nor_holds_on_to_them(
    database: Database, processes: Processes, tmp_path: Path
) -> None:
    """R035: an hour ahead and an hour behind. They do not take back what a living worker holds; and
    what they held when they died is taken back in time."""
    app = App.of(database, tmp_path)
    kept = await app.gated.aenqueue("gate")
    lost = {clock: await app.gated.using(queue=clock).aenqueue("never") for clock in ("+1h", "-1h")}

    async def reclaimed(job: Job) -> bool:
        return (await app.ol.ajob(job.id)).state == "ready"

    async with app.ol, work(app.ol, queues=["default"]):
        await started(app.ol, kept)
        env = app.environment(lease=LEASE)
        wrong = [processes.python(WORKER, clock, env=env | wrong_clock(clock)) for clock in lost]
        for job in lost.values():
            await started(app.ol, job, timeout=60)
        await asyncio.sleep(3 * TIMINGS["reclaim_every"])  # they look for lost jobs, too
        assert (await app.ol.ajob(kept.id)).fence == 1, "no early reclaim"
        for process in wrong:
            process.kill()
        bound = LEASE + TIMINGS["reclaim_every"] + 1.0
        for job in lost.values():
            await aeventually(lambda job=job: reclaimed(job), bound + SLACK)
            assert (await app.ol.ajob(job.id)).crashes >= 1, "no late reclaim"
        (tmp_path / "gate").touch()
        await aeventually(lambda: app.ol.job(kept.id).state == "succeeded")
        assert (await app.ol.ajob(kept.id)).fence == 1
