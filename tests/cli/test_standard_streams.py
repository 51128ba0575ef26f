"""Standard streams that are closed or full: a sentence or nothing, never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.cli.conftest import Commands


def outlast(run: Commands, streams: str, *words: str) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own, with its streams as the shell is told."""
    given = {name: value for name, value in run.environment.items() if value is not None}
    command = ["sh", "-c", f'exec "$@" {streams}', "sh", sys.executable, "-m", "outlast", *words]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | given
    )


@pytest.mark.parametrize("words", [["jobs"], ["--version"], ["worker", "--help"]])
def test_a_full_disk_behind_the_output_is_told(run: Commands, words: list[str]) -> None:
    ended = outlast(run, ">/dev/full", *words)
    assert (ended.returncode, ended.stderr) == (
        1,
        "outlast: The output cannot be written: No space left on device.\n",
    )


def test_closed_streams_lead_nowhere(run: Commands) -> None:
    """No file and no connection gets their descriptors, and so what is printed."""
    ended = outlast(run, "<&- >&-", "jobs")
    assert (ended.returncode, ended.stderr) == (0, "")
    ended = outlast(run, "<&- 2>&-", "job", "nonsense")
    assert (ended.returncode, ended.stdout) == (1, "")
    code = "from outlast.cli import main; import atexit, os; " + (
        "atexit.register(lambda: os._exit(os.open('/', os.O_RDONLY))); main()"
    )
    program = [sys.executable, "-c", code, "--version"]
    shell = subprocess.run(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *program], check=False)
    assert shell.returncode > 2  # the next free descriptor
