"""Streams that are closed or full, a folder that is gone: a sentence, never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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


@pytest.mark.parametrize("words", [["jobs"], ["worker", "app:ol"]])
def test_a_working_directory_that_is_gone_is_told(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTLAST_URL", "sqlite:///jobs.db")
    command = ["sh", "-c", 'rmdir "$PWD"; exec "$@"', "sh", sys.executable, "-m", "outlast", *words]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith("outlast: The ") and "working directory" in ended.stderr
    assert ended.stderr.count("\n") == 1


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
