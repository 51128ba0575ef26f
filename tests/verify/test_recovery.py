"""`outlast verify recovery`: a sample on both databases."""

from __future__ import annotations

import pytest

from outlast.verify.campaigns.recovery import HeldJobs, Kill
from outlast.verify.ledger import LedgerEntry
from tests.support import Database, Processes
from tests.verify.running import PATIENCE, run, start
from tests.verify.test_crash import left


@pytest.mark.slow_on("postgres")
def test_the_jobs_of_a_killed_worker_run_on_another(
    processes: Processes, database: Database
) -> None:
    """R027, R063, R204: measured from SIGKILL to running again, with the settings of the product;
    long before the lease could end. How soon it is on a machine of its own, the campaign tells."""
    said = run(processes, "recovery", database, "--seed", 1, "--times", 4)
    assert said["violations"] == 0, said["wrong"]
    assert said["kills"] == said["recovery"]["n"] == 4
    assert said["restarted"] >= 4
    assert 0 < said["recovery"]["p50"] <= said["recovery"]["p99"] <= said["recovery"]["max"] < 17
    assert left(database) == []


@pytest.mark.slow_on("postgres")
def test_it_is_shown_with_a_picture(processes: Processes, database: Database) -> None:
    shown = start(processes, "recovery", "--url", database.url, "--times", 2).succeed(PATIENCE)
    assert "recovery: n 2  p50" in shown
    assert "█" in shown
    assert "0 violations" in shown


def test_the_slowest_job_counts_and_only_on_another_worker() -> None:
    hands = HeldJobs()
    for job in ("a", "b"):
        hands.record(LedgerEntry("began", job, 1, pid=7))
    hands.kills.append(Kill(7, 100.0, hands.held.pop(7)))
    (kill,) = hands.kills
    hands.record(LedgerEntry("began", "c", 1, pid=7, at=99.9))  # written before it died, read after
    assert kill.jobs == {"a", "b", "c"}
    hands.record(LedgerEntry("began", "b", 2, pid=8, at=100.7))
    hands.record(LedgerEntry("began", "a", 2, pid=9, at=100.4))
    assert kill.jobs == {"c"}
    hands.record(LedgerEntry("began", "c", 2, pid=8, at=100.5))
    assert not kill.jobs
    assert round(kill.slowest, 3) == 0.7
