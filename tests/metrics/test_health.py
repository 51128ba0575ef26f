"""Alive is who makes progress; ready is who has all that it needs. Neither is mixed up."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from outlast.metrics.health import Health
from tests.metrics.scraping import measured
from tests.support import Postgres, Processes, eventually
from tests.support.app import PATIENCE, App


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(4.0, id="short"),  # longer than it may stand still
        pytest.param(
            300.0, id="five-minutes", marks=[pytest.mark.campaign, pytest.mark.timeout(600)]
        ),
    ],
)
def test_a_database_that_is_away_is_no_reason_to_be_killed(
    own_postgres: Postgres, processes: Processes, tmp_path: Path, seconds: float
) -> None:
    """R188, R195: alive all along, not ready, and what was measured tells its age."""
    app = App(own_postgres.url(), "outlast", tmp_path)
    app.ol.migrate()
    worker = measured(processes, app, live_within=1.5)
    eventually(lambda: worker.get("/readyz").status == 200, PATIENCE)
    app.nap.enqueue(seconds=0.0)
    before = worker.moves("outlast_claims_total")
    own_postgres.stop()
    away = time.monotonic()
    refusal = eventually(lambda: (said := worker.get("/readyz")).status == 503 and said, PATIENCE)
    assert "the database does not answer" in refusal.body
    for secret in (str(own_postgres.port), "127.0.0.1", "postgres"):
        assert secret not in refusal.body
    while time.monotonic() < away + seconds:
        assert worker.get("/livez").status == 200
        time.sleep(0.1)
    during = worker.scrape()
    assert during("outlast_snapshot_age_seconds") > seconds - 1.0
    assert during("outlast_snapshot_failures_total") >= 1
    assert during("outlast_claims_total") == before("outlast_claims_total")
    own_postgres.start()
    eventually(lambda: worker.get("/readyz").status == 200, PATIENCE)
    eventually(lambda: worker.scrape()("outlast_snapshot_age_seconds") < 2.5, PATIENCE)
    assert not worker.process.ended
    app.close()


@pytest.mark.kinds("postgres")
@pytest.mark.quiet  # an event loop that gets no processor for a second stands still
def test_a_worker_that_waits_for_its_database_is_alive(
    processes: Processes, app: App, tmp_path: Path
) -> None:
    """R188: from the start."""
    nowhere = App("postgresql://u:hunter2@127.0.0.1:1/d", "outlast", tmp_path)
    worker = measured(processes, nowhere, live_within=1.0)
    until = time.monotonic() + 2.5
    while time.monotonic() < until:
        assert worker.get("/livez").status == 200
        time.sleep(0.1)
    assert worker.get("/readyz").status == 503
    assert worker.scrape()("outlast_info") == 1
    assert "hunter2" not in worker.process.output() + worker.get("/readyz").body
    nowhere.close()


@pytest.mark.kinds("sqlite")
def test_a_wedged_worker_is_not_alive(processes: Processes, app: App) -> None:
    """R187: a handler that blocks the event loop, although its leases are still renewed."""
    worker = measured(processes, app, live_within=1.0)
    eventually(lambda: worker.get("/readyz").status == 200, PATIENCE)
    app.block.enqueue(seconds=4.0)
    app.ledger.wait("start")
    began = time.monotonic()
    stuck = eventually(lambda: (said := worker.get("/livez")).status == 503 and said, 4.0)
    assert time.monotonic() - began < 3.0
    assert "the event loop has stood still for" in stuck.body
    assert worker.scrape()("outlast_beat_age_seconds") > 1.0
    eventually(lambda: worker.get("/livez").status == 200, PATIENCE)


@pytest.mark.kinds("sqlite")
def test_a_worker_that_drains_is_alive_and_not_ready(processes: Processes, app: App) -> None:
    worker = measured(processes, app)
    app.gated.enqueue(gate="gate")
    app.ledger.wait("start")
    worker.process.terminate()
    said = eventually(lambda: (said := worker.get("/readyz")).status == 503 and said, PATIENCE)
    assert said.body == "the worker is stopping\n"
    assert worker.get("/livez").status == 200
    (app.folder / "gate").touch()
    assert worker.process.wait(PATIENCE) == 0


def test_a_verdict_gives_its_reasons() -> None:
    assert (str(Health()), Health().status) == ("ok", 200)
    assert str(Health(("one", "two"))) == "one; two"
