"""`outlast verify soak`: a sample on both databases."""

from __future__ import annotations

import signal
import sys

import pytest

from outlast.verify.ledger import LedgerEntry
from outlast.verify.load import MAX_BACKLOG, Backlog, Gate
from tests.support import Database, Processes, eventually
from tests.verify.running import run, start
from tests.verify.test_command import group
from tests.verify.test_crash import left


@pytest.mark.slow
def test_whatever_happens_under_load_nothing_is_lost(
    processes: Processes, database: Database
) -> None:
    """R075, R206: faults of random kinds under load; then all has ended, once, on record."""
    said = run(processes, "soak", database, "--seed", 1, "--minutes", 0.15)
    assert said["violations"] == 0, said["wrong"]
    assert said["faults"] >= 2
    assert said["jobs"] >= said["enqueued"] > 0
    assert left(database) == []


@pytest.mark.kinds("sqlite")
@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
def test_whoever_interrupts_it_finds_everything_removed(
    processes: Processes, database: Database
) -> None:
    """Workers, enqueuers and whoever is supervised end with it."""
    running = start(processes, "soak", "--url", database.url, "--minutes", 5)
    eventually(lambda: len(group(running)) > 6, 30.0, message=running.output)
    running.signal(signal.SIGTERM)
    assert running.wait(20.0) == 130
    assert left(database) == []
    eventually(lambda: group(running) == [])


def test_enqueuers_wait_while_much_is_to_be_done() -> None:
    backlog = Backlog(Gate())
    jobs = [str(n) for n in range(MAX_BACKLOG + 10)]
    backlog.record([LedgerEntry("began", jobs[0], 1)])  # begun before its promise was written
    assert backlog.record([LedgerEntry("promised", job) for job in jobs]) == len(jobs)
    assert backlog.gate.state == Gate.FULL
    backlog.record([LedgerEntry("began", job, 1) for job in jobs[1:20]])
    assert backlog.gate.state == Gate.OPEN
    backlog.gate.set(Gate.SHUT)
    backlog.record([])
    assert backlog.gate.state == Gate.SHUT
    assert len(backlog.waiting) == MAX_BACKLOG + 10 - 20
