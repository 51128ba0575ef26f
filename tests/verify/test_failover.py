"""`outlast verify failover`: a sample, and the whole as a campaign."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from outlast.verify.campaigns.accepted_outcomes import LostCommits, duplicate_owners
from outlast.verify.checks.evidence import Evidence, JobRow
from outlast.verify.ledger import LedgerEntry
from tests.support import Processes, eventually
from tests.verify.running import figures
from tests.verify.test_dbcrash import MISSING

PATIENCE = 240.0


def fail_over(processes: Processes, folder: Path, *words: object, patience: float) -> Any:
    words = (*words, "--seed", 1, "--json")
    running = processes.python("outlast", "verify", "failover", *words, env={"TMPDIR": str(folder)})
    said = figures(running.succeed(patience))
    assert said["violations"] == 0, said["wrong"]
    assert list(folder.glob("outlast-verify-*")) == []
    return said


@pytest.mark.campaign
@pytest.mark.timeout(300)
def test_a_promoted_standby_has_all_that_was_acknowledged(
    processes: Processes, folder: Path
) -> None:
    """R215: the primary is stopped under load; by one address that names both servers, work goes on
    at the other, and nothing is lost or accepted twice. Servers and folders are gone afterwards."""
    said = fail_over(processes, folder, "--times", 1, "--workers", 2, patience=PATIENCE)
    assert said["failovers"] == said["first_claim"]["n"] == 1
    assert said["jobs"] >= said["enqueued"] > 0


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_two_primaries_accept_a_claim_for_one_owner(processes: Processes, folder: Path) -> None:
    """R215: claims that the standby never heard of are made again under the same fences, by others.
    When the old primary dies, its workers bring their outcomes to the new one: refused."""
    words = ("--async", "--times", 1, "--workers", 2)
    said = fail_over(processes, folder, *words, patience=PATIENCE)
    assert said["contested"] > 0 and said["lost"] > 0


@pytest.mark.campaign
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("words", [["--times", 20], ["--async", "--times", 10]])
def test_failovers_under_load(processes: Processes, folder: Path, words: list[object]) -> None:
    """R215: twenty synchronous ones lose nothing; ten asynchronous ones accept no claim for
    two owners, and every job that is left ends."""
    said = fail_over(processes, folder, *words, patience=1700.0)
    assert said["failovers"] == words[-1]


def test_the_judge_sees_a_claim_that_was_accepted_for_two() -> None:
    """R215: what went with the old primary is no evidence; what the new one accepted is."""
    row = JobRow("j", "succeeded", 1, 0, 0, 1, "new", None, 0.0, None, 3, 3, "q", {})

    def judged(*accepted: tuple[str, int, float]) -> list[str]:
        ledger = [LedgerEntry("accepted", "j", 1, [who, port], 0, at) for who, port, at in accepted]
        evidence = Evidence(rows={"j": row}, ledger=ledger)
        return [found.message for found in duplicate_owners(evidence, [LostCommits(1, 10.0, 20.0)])]

    assert judged(("old", 1, 15.0), ("new", 2, 16.0), ("new", 2, 17.0)) == []
    [both] = judged(("old", 2, 21.0), ("new", 2, 16.0))
    assert "accepted for 2 owners" in both
    [other] = judged(("old", 2, 21.0))
    assert "claim 1 is new's" in other


@pytest.mark.parametrize("given", [["--url", "postgresql://127.0.0.1:1/x"], ["--times", "0"]])
def test_it_touches_no_servers_but_its_own(processes: Processes, given: list[str]) -> None:
    refused = processes.python("outlast", "verify", "failover", *given)
    assert refused.wait(30.0) == 2
    assert given[0] in refused.output()


def test_what_has_to_be_installed_for_it_is_said(processes: Processes, folder: Path) -> None:
    refused = processes.python(MISSING, "verify", "failover", env={"TMPDIR": str(folder)})
    assert refused.wait(30.0) == 1
    assert "failover starts its own PostgreSQL server: pip install" in refused.output()
    assert "Traceback" not in refused.output()
    assert list(folder.glob("outlast-verify-*")) == []


@pytest.mark.parametrize("campaign", ["failover", "dbcrash"])
def test_stopped_while_it_makes_its_server_it_leaves_nothing(
    processes: Processes, folder: Path, campaign: str
) -> None:
    """SIGTERM as soon as there is something to remove, long before the server runs."""
    running = processes.python("outlast", "verify", campaign, env={"TMPDIR": str(folder)})
    eventually(lambda: list(folder.glob("outlast-verify-pg-*")), 30, message=running.output)
    running.signal(signal.SIGTERM)
    assert running.wait(30.0) == 130, running.output()
    assert list(folder.iterdir()) == []
