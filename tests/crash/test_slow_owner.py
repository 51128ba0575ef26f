"""An owner that is slow but alive keeps its job, whatever those who look for lost claims do."""

from __future__ import annotations

import pytest

from outlast.ops.reclaim import reclaim
from tests.support import Database, Processes, eventually
from tests.support.app import PATIENCE, App
from tests.support.locks import pause_between_writes

LEASE, RENEW, PAUSED, RUNS = 3.0, 0.4, 1.2, 3.8  # seconds


@pytest.mark.kinds("sqlite", "postgres")
def test_a_slow_owner_wins_over_every_sweep(
    app: App, processes: Processes, database: Database
) -> None:
    """R112: its event loop is blocked for longer than its lease, its whole process stands still for
    three renewals, and both jobs are on their last attempt and their last crash, so
    one premature verdict would be final. Two sweepers are at work all the time. Nobody ever sees a
    state but running, then success, of the first attempt."""
    last = {"max_attempts": 1, "max_crashes": 1}
    jobs = [
        app.block.using(queue="slow", **last).enqueue(RUNS),
        app.nap_in_thread.using(queue="slow", **last).enqueue(RUNS),
    ]
    timings = {"lease": LEASE, "renew_every": RENEW}
    owner = app.start_worker(processes, queue="slow", **timings, stall_limit=0)
    app.start_worker(processes, queue="other", reclaim_every=0.05, audit_every=0.2)
    app.ledger.wait("start", count=2)
    eventually(lambda: len(app.ol.workers()) == 2, PATIENCE)
    seen: set[str] = set()
    pause_between_writes(owner, database)
    seen |= _watch(app, [job.id for job in jobs], PAUSED)
    owner.resume()
    seen |= _watch(app, [job.id for job in jobs], PATIENCE)
    assert seen == {"running", "succeeded"}
    for job in jobs:
        ended = app.ol.job(job.id)
        assert (ended.state, ended.attempt, ended.crashes, ended.fence) == ("succeeded", 1, 0, 1)
        assert ended.started_at and ended.finished_at
        assert (ended.finished_at - ended.started_at).total_seconds() > LEASE
        assert app.ol.history(job.id)[0] == [], "no attempt ended in any other way"


def _watch(app: App, ids: list[str], seconds: float) -> set[str]:
    """Sweep, and see the states that the jobs are in, until all have ended or time is up."""
    seen: set[str] = set()

    def all_ended() -> bool:
        app.ol.store.run(reclaim)
        jobs = [app.ol.job(id) for id in ids]
        seen.update(str(job.state) for job in jobs)
        return all(job.final for job in jobs)

    try:
        eventually(all_ended, seconds)
    except AssertionError:
        assert seconds < PATIENCE, seen
    return seen
