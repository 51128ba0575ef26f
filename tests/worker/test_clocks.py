"""Worker processes whose clocks are wrong: only the database's clock decides."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support import Database, Processes, wrong_clock
from tests.support.app import BOUND, SLACK, TIMINGS, App

LEASE = 3.0


@pytest.mark.kinds("postgres")
def test_a_wrong_clock_neither_steals_jobs_nor_holds_on_to_them(
    database: Database, processes: Processes, tmp_path: Path
) -> None:
    """R035: one worker an hour ahead, one an hour behind, one right: nobody's job is reclaimed
    while its owner lives, and everybody's is in time when it does not."""
    app = App.of(database, tmp_path)
    app.ol.migrate()
    env = app.environment(concurrency=1, lease=LEASE)
    clocks = [wrong_clock("+1h"), wrong_clock("-1h"), {}]
    jobs = [app.gated.enqueue(f"gate-{n}") for n in range(3)]
    workers = [processes.python("tests.support.app", "", env=env | clock) for clock in clocks]
    starts = app.ledger.wait("start", count=3, timeout=30)
    assert {start.pid for start in starts} == {worker.pid for worker in workers}
    time.sleep(1.5 * LEASE)
    assert len(app.ledger.read("start")) == 3, "no early reclaim"

    *wrong, right = workers
    for worker in wrong:
        worker.kill()
    killed_at = time.monotonic()
    own = next(start.job for start in starts if start.pid == right.pid)
    (tmp_path / f"gate-{[job.id for job in jobs].index(own)}").touch()
    again = app.ledger.wait("start", count=5, timeout=30)[3:]
    assert {start.pid for start in again} == {right.pid}
    bound = BOUND - TIMINGS["lease"] + LEASE
    assert all(start.at - killed_at < bound + SLACK for start in again), "no late reclaim"
    for job in jobs:
        done = app.finished(job)
        assert done.crashes == (0 if job.id == own else 1)
    app.close()
