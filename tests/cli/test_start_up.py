"""Starting is quick: nobody waits for what a command does not need."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

import pytest

from tests.support.processes import ROOT

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
TRIES = 7  # the best of them counts: the machine may be busy with other things


def seconds(*command: str) -> float:
    """Of the processor: on a machine of its own, it is what somebody waits."""

    def spent() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    def once() -> float:
        before = spent()
        subprocess.run(
            [sys.executable, *command], check=True, stdout=subprocess.DEVNULL, env=ENVIRONMENT
        )
        return spent() - before

    return min(once() for _ in range(TRIES))


def test_the_help_of_a_worker_is_there_at_once() -> None:
    assert seconds("-m", "outlast", "worker", "--help") <= 0.3


def test_importing_outlast_is_quick() -> None:
    assert seconds("-c", "import outlast") <= 0.15


@pytest.mark.parametrize("arguments", [["worker", "--help"], ["--help"]])
def test_what_help_does_not_need_is_not_imported(arguments: list[str]) -> None:
    """The same promise without a clock: these take longer to import than all of ours."""
    code = f"""
import sys
from outlast.cli import outlast
outlast({arguments!r}, standalone_mode=False)
heavy = {{"pydantic", "psycopg", "rich", "sqlite3", "uvloop"}} & sys.modules.keys()
sys.exit(f"imported: {{heavy}}" if heavy else 0)
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=ENVIRONMENT, check=False
    )
    assert ended.returncode == 0, ended.stderr
