"""R194: each way in which something goes wrong, and is put right, moves the metric that says so;
read over HTTP from real worker processes."""

from __future__ import annotations

import pytest

from outlast.ops.reclaim import reclaim_from_workers
from tests.metrics.scraping import fleet, measured
from tests.support import Processes, eventually
from tests.support.app import PATIENCE, App
from tests.support.processes import kill


@pytest.mark.kinds("sqlite")
def test_attempts_are_counted_by_how_they_end(processes: Processes, app: App) -> None:
    """Success, retry, dead, given up, unknown: and how long they waited and ran."""
    app.ol.enqueue(*(app.mark.job(n=n) for n in range(5)))
    for task in ("gives_up", "fails", "nobody_knows"):
        app.ol.task(_nothing, name=task).using(max_attempts=2).enqueue()
    worker = measured(processes, app)
    worker.moves("outlast_dead_total", 2)
    said = worker.moves("outlast_released_total")
    assert said("outlast_finishes_total", outcome="succeeded") == 5
    assert said("outlast_finishes_total", outcome="failed") == 2
    assert said("outlast_retries_total", outcome="failed") == 1
    assert said("outlast_dead_total", outcome="failed") == 1
    assert said("outlast_dead_total", outcome="permanent") == 1
    assert said("outlast_unhandled_total") >= 1
    assert said("outlast_claims_total", queue="default") >= 9
    assert said("outlast_wait_seconds_count") == said("outlast_claims_total")
    assert said("outlast_run_seconds_count", task="mark") == 5
    assert said("outlast_run_seconds_bucket", task="mark", le="+Inf") == 5
    eventually(lambda: worker.scrape()("outlast_jobs", state="dead") == 2, PATIENCE)
    assert worker.scrape()("outlast_duty_last_success_seconds", duty="reclaim") < 60


@pytest.mark.kinds("postgres")
def test_the_supervisor_counts_what_it_took_back(processes: Processes, app: App) -> None:
    """A worker process that is killed under it."""
    [supervisor] = fleet(processes, app, 2).of("supervisor")
    job = app.gated.enqueue(gate="never")
    [start] = app.ledger.wait("start", job.id)
    kill(start.pid)
    app.finished(job)
    said = supervisor.moves("outlast_reclaimed_total", way="exit", class_="owner-dead")
    assert said("outlast_child_exits_total", how="signal") == 1
    assert said("outlast_buried_total") == 1


def test_a_killed_worker_is_found_by_its_lock(processes: Processes, app: App) -> None:
    victim = measured(processes, app, queues="first")
    job = app.gated.using(queue="first").enqueue(gate="never")
    app.ledger.wait("start", job.id)
    heir = measured(processes, app)
    heir.moves("outlast_workers", 2, state="working")
    victim.process.kill()
    said = heir.moves("outlast_reclaimed_total", way="lock", class_="owner-dead")
    assert said("outlast_reclaimed_total") == 1
    assert said("outlast_buried_total") == 1
    app.finished(job)


@pytest.mark.kinds("postgres")
def test_a_paused_worker_is_found_by_its_lease_and_finds_its_claim_lost(
    processes: Processes, app: App
) -> None:
    """R213: its process exists, so no crash is counted."""
    victim = measured(processes, app, queues="first")
    job = app.gated.using(queue="first").enqueue(gate="never")
    app.ledger.wait("start", job.id)
    heir = measured(processes, app)
    heir.moves("outlast_workers", 2, state="working")
    victim.process.pause()
    said = heir.moves("outlast_reclaimed_total", way="lease", class_="owner-dead")
    assert said("outlast_finishes_total", outcome="stalled") == 1
    app.finished(job)
    victim.process.resume()
    victim.moves("outlast_claims_lost_total")


@pytest.mark.kinds("sqlite")
def test_what_a_zombie_writes_is_refused_and_counted(processes: Processes, app: App) -> None:
    """Its job is somebody else's before it has ended, and it does not know yet."""
    zombie = measured(processes, app, lease=60, renew_every=20)
    job = app.gated.enqueue(gate="gate")
    app.ledger.wait("start", job.id)
    app.ol.pause("default")
    app.ol.store.run(reclaim_from_workers, [str(app.ol.job(job.id).worker)], "exit")
    (app.folder / "gate").touch()
    said = zombie.moves("outlast_zombie_writes_refused_total")
    assert said("outlast_finishes_total", outcome="succeeded") == 0


@pytest.mark.kinds("postgres")
def test_an_overdue_job_is_taken_from_a_worker_that_cannot_stop_it(
    processes: Processes, app: App
) -> None:
    """By the others, though its lease is good and its lock held."""
    stuck = measured(processes, app, queues="first", lease=60, renew_every=20, cancel_grace=0)
    job = app.gated.using(queue="first", timeout=0.5).enqueue(gate="never")
    app.ledger.wait("start", job.id)
    stuck.process.pause()
    others = measured(processes, app, cancel_grace=0)
    said = others.moves("outlast_reclaimed_total", way="deadline", class_="owner-hung")
    assert said("outlast_retries_total", outcome="timed-out") == 1


@pytest.mark.kinds("sqlite")
def test_a_job_that_kills_its_workers_is_counted_as_poison(processes: Processes, app: App) -> None:
    [supervisor] = fleet(processes, app, 2).of("supervisor")
    app.poison.using(max_crashes=1).enqueue()
    said = supervisor.moves("outlast_reclaimed_total", way="exit", class_="poison")
    assert said("outlast_dead_total", outcome="crashed") == 1


def _nothing() -> None: ...
