"""Worker processes whose clocks are wrong: only the database's clock decides."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import Database, Process, Processes, eventually, wrong_clock
from tests.support.app import SLACK, TIMINGS, App

WORKER = """
    import sys
    from tests.support.app import from_environment

    from_environment().ol.worker(queues=sys.argv[1:]).run()
    """
SHORT, LONG = 2.0, 120.0  # leases


@pytest.mark.kinds("postgres")
@pytest.mark.timeout(240)
def test_a_wrong_clock_neither_steals_jobs_nor_holds_on_to_them(
    database: Database, processes: Processes, tmp_path: Path
) -> None:
    """R035: an hour ahead or an hour behind, as the owner or as the one who sweeps: nobody's job
    is reclaimed while its lease lasts, and everybody's is soon after."""
    app = App.of(database, tmp_path)
    app.ol.migrate()
    ahead, behind = wrong_clock("+1h"), wrong_clock("-1h")

    def start(clock: dict[str, str], lease: float, queue: str) -> Process:
        env = app.environment(concurrency=1, lease=lease, renew_every=lease / 4)
        return processes.python(WORKER, queue, env=env | clock)

    kept = [app.gated.enqueue("gate") for _ in range(2)]
    lost = [app.gated.using(queue=queue).enqueue("never") for queue in ("a", "b")]
    start(ahead, LONG, "default")
    start(behind, LONG, "default")
    owners = [start(ahead, SHORT, "a"), start(behind, SHORT, "b")]
    for job in (*kept, *lost):
        app.ledger.wait("start", job=job.id, timeout=60)
    for owner in owners:
        owner.kill()
    bound = SHORT + TIMINGS["reclaim_every"] + 1.0
    for job in lost:
        eventually(lambda id=job.id: app.ol.job(id).state == "ready", bound + SLACK)
        assert app.ol.job(job.id).crashes >= 1, "no late reclaim"
    # By now each of those who live has looked for lost jobs several times.
    assert {app.ol.job(job.id).fence for job in kept} == {1}, "no early reclaim"
    (tmp_path / "gate").touch()
    for job in kept:
        assert app.finished(job, timeout=60).crashes == 0
    app.close()
