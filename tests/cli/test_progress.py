"""Progress of long commands: one line on a terminal, nothing anywhere else."""

from __future__ import annotations

import io
import json
import logging
import os
import pty
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from outlast import Outlast
from outlast.cli.progress import CLEAR, ProgressHandler, ProgressLine, counted_pages
from tests.support import Database, eventually

pytestmark = pytest.mark.kinds("sqlite")


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@contextmanager
def written(database: Database) -> Iterator[None]:
    """Somebody else writes, and takes as long as this block."""
    with database.connect() as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


class Command:
    """A command of its own process; standard error is a terminal or a pipe."""

    def __init__(self, database: Database, *args: str, terminal: bool) -> None:
        environment = {**os.environ, "OUTLAST_URL": database.url, "COLUMNS": "80"}
        self._main, side = pty.openpty() if terminal else os.pipe()
        self.seen = ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "outlast", *args], env=environment, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=side,
        )  # fmt: skip
        os.close(side)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        try:
            while data := os.read(self._main, 4096):
                self.seen += data.decode()
        except OSError:  # a terminal whose other side is closed
            pass

    def end(self) -> str:
        out, _ = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, self.seen
        self._reader.join(10)
        os.close(self._main)
        return str(out)


@pytest.fixture
def dead(database: Database) -> Database:
    with Outlast(database.url, schema=database.schema) as ol:
        ol.migrate()
        task = ol.task(name="work")(lambda: None)
        for job in [task.enqueue() for _ in range(3)]:
            ol.cancel(job.id)
    return database


COMMANDS = {
    "purge": (["purge", "--state", "cancelled", "--yes"], "Removed 0 of 3 jobs (0 %), "),
    "retry": (["retry", "--all", "--state", "cancelled", "--yes"], "Retried 0 of 3 jobs (0 %), "),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_terminal_shows_how_far_a_long_command_is(dead: Database, name: str) -> None:
    """The line appears while the command waits, and is gone when it has ended."""
    args, line = COMMANDS[name]
    with written(dead):
        command = Command(dead, *args, terminal=True)
        eventually(lambda: line in command.seen, timeout=30)
    assert "3 jobs" in command.end()
    assert command.seen.endswith(CLEAR)
    assert command.seen.count("\n") == 1, "beside it, the announcement"


def test_a_pipe_sees_nothing_of_it(dead: Database) -> None:
    """Nor does --json: the announcement is on standard error, the result on standard output."""
    args, _ = COMMANDS["purge"]
    with written(dead):
        command = Command(dead, *args, "--json", terminal=False)
        eventually(lambda: "will be removed" in command.seen, timeout=30)
        time.sleep(1.6)  # longer than it takes a terminal to see the first line
    assert json.loads(command.end())["purged"] == 3
    assert command.seen == "3 cancelled jobs will be removed.\n"


def test_a_line_counts_pages_when_they_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outlast.cli.progress.FIRST_AFTER_S", 0.0)
    monkeypatch.setattr("outlast.cli.progress.EVERY_S", 0.01)
    screen = Screen()
    with ProgressLine("Retried", 5, screen) as line:
        for number, _ in enumerate(counted_pages(line, [[1, 2], [3, 4], [5]])):
            eventually(lambda: f"Retried {2 * number} of 5 jobs" in screen.getvalue())  # noqa: B023
    assert line.done == 5
    assert screen.getvalue().endswith(CLEAR)


def test_a_short_command_draws_nothing() -> None:
    screen = Screen()
    with ProgressLine("Retried", 5, screen):
        pass
    assert screen.getvalue() == ""


def test_steps_of_a_migration_are_shown_with_their_rows() -> None:
    line = ProgressLine("Migrating", out=Screen())
    log = logging.Logger("test")
    log.addHandler(ProgressHandler(line))
    log.info("version 2, step 1 of 3: fill \x1b[31mit")
    assert line.text() == "version 2, step 1 of 3: fill \\x1b[31mit, 0s"
    log.info("… 5,000 rows")
    assert line.text() == "version 2, step 1 of 3: fill \\x1b[31mit … 5,000 rows, 0s"
    log.info("version 2, step 2 of 3: index")
    assert line.text() == "version 2, step 2 of 3: index, 0s"
