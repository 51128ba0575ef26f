"""`outlast verify clock`: a sample."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import Processes
from tests.support.requirements import require_program
from tests.verify.running import PATIENCE, figures

NO_FAKETIME = """
    from outlast.verify.faults import faketime
    faketime.FOLDERS = ()
    faketime.shutil.which = lambda name: None
    from outlast.cli import main
    main()
"""
LONG = 900.0


def steps(processes: Processes, folder: Path, patience: float, *words: object) -> None:
    """The clock steps, and no job loses its owner; nothing is left behind."""
    require_program("faketime")
    given = ["--seed", 1, "--json", *words]
    running = processes.python("outlast", "verify", "clock", *given, env={"TMPDIR": str(folder)})
    said = figures(running.succeed(patience))
    assert said["violations"] == 0, said["wrong"]
    assert said["steps"] == words[words.index("--steps") + 1]
    assert (said["lost_owners"], said["crashes"], said["dead"]) == (0, 0, 0)
    assert said["jobs"] == said["claims"] == words[words.index("--jobs") + 1]
    assert list(folder.glob("outlast-verify-*")) == []


@pytest.mark.quiet
@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
@pytest.mark.timeout(120)
def test_a_clock_that_steps_costs_no_job_its_owner(
    processes: Processes, folder: Path, store: str
) -> None:
    """R213: an hour ahead and back, three times, two workers, five jobs: five starts, no crash."""
    small = ["--steps", 3, "--locks", 0, "--jobs", 5, "--workers", 2]
    steps(processes, folder, PATIENCE, "--store", store, *small)


@pytest.mark.campaign
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
@pytest.mark.timeout(LONG)
def test_twenty_steps_and_three_locks_under_two_hundred_jobs_cost_nothing(
    processes: Processes, folder: Path, store: str
) -> None:
    """R213, R214: in whole size."""
    whole = ["--steps", 20, "--locks", 3, "--jobs", 200]
    steps(processes, folder, LONG, "--store", store, *whole)


def test_what_has_to_be_installed_is_said(processes: Processes, folder: Path) -> None:
    refused = processes.python(NO_FAKETIME, "verify", "clock", env={"TMPDIR": str(folder)})
    assert refused.wait(30.0) == 1
    assert "install the package faketime" in refused.output()
    assert "Traceback" not in refused.output()
    assert list(folder.glob("outlast-verify-*")) == []


def test_it_steps_no_clock_but_its_own(processes: Processes) -> None:
    refused = processes.python("outlast", "verify", "clock", "--url", "postgresql://127.0.0.1:1/x")
    assert refused.wait(30.0) == 2
    assert "--url" in refused.output()
