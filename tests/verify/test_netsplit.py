"""`outlast verify netsplit`: a sample of every path, and copies that fail it."""

from __future__ import annotations

from pathlib import Path

import pytest

from outlast.verify.call_timer import overdue_calls, timed_calls
from outlast.verify.campaigns.netsplit import FAULT_KINDS
from outlast.verify.ledger import LedgerEntry
from tests.support import Database, Processes
from tests.verify.running import all_paths, only, run, sampled_paths
from tests.verify.test_crash import left
from tools.mutants.mutation import POSTGRES, Edit, Mutant, RunOptions, copy_package, run_campaign


@pytest.mark.slow
@pytest.mark.quiet
@pytest.mark.kinds("postgres")
@pytest.mark.parametrize(
    "here",
    [
        sampled_paths("postgres", half=0),
        pytest.param(all_paths("postgres"), marks=pytest.mark.campaign),
    ],
    ids=["sample", "all"],
)
def test_no_call_outlives_its_deadline(
    processes: Processes, database: Database, here: list[str]
) -> None:
    """R169, R170: silence, slowness and breaks in the middle of everything; every call comes back
    in time with an answer or an error of ours, and then everything recovers."""
    said = run(processes, "netsplit", database, "--seed", 1, "--points", len(here), *only(here))
    assert said["violations"] == 0, said["wrong"]
    assert set(said["paths"]) == set(here)
    assert said["splits"] >= len(here)
    assert [kind for kind in FAULT_KINDS if not said[kind]] == []
    assert said["calls"] > said["splits"]
    assert " s (" in said["slowest_call"]
    assert left(database) == []


DEADLINE = Mutant(
    "no deadline",
    "see the edit",
    [
        Edit(
            "store/postgres/connection.py",
            "            return super().wait(gen, interval, timeout or left(self))\n",
            "            return super().wait(gen, interval, timeout or 3600.0)\n",
        )
    ],
    campaign="netsplit",
    paths=("enqueue", "finish-failed"),
    points=24,
    store=POSTGRES,
)


@pytest.mark.campaign
@pytest.mark.kinds("postgres")
def test_a_copy_without_a_deadline_is_noticed(database: Database, tmp_path: Path) -> None:
    """R207"""
    copy, options = copy_package(DEADLINE, tmp_path), RunOptions(url=database.url)
    found = run_campaign(copy, DEADLINE.campaign_run, options, first=True)
    assert found["violations"] > 0, found


def test_what_is_late_and_what_is_not_ours_is_told() -> None:
    said = [
        LedgerEntry("called", "p1", 0, ["enqueue", 0.1, "answer"]),
        LedgerEntry("called", "p1", 0, ["claim", 1.5, "DeadlineExceeded"]),
        LedgerEntry("began", "p1"),
        LedgerEntry("called", "p2", 0, ["renew", 5.2, "answer"]),
        LedgerEntry("called", "p3", 0, ["finish", 0.2, "!OSError: gone"]),
    ]
    found = list(overdue_calls(timed_calls(iter(said)), 5.0))
    assert [(one.orphan, one.job, one.queue) for one in found] == [
        ("hung", "renew", "p2"),
        ("untyped", "finish", "p3"),
    ]
