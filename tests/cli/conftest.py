"""`run("jobs", "--json")`: the command line in this process, on the test's database."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from click.testing import CliRunner

from outlast import Outlast
from outlast.cli import outlast
from tests.support import Database, Process, Processes, aeventually, eventually

# Processes start here, on machines that may have other things to do.
patiently = partial(eventually, timeout=30.0, interval=0.05)


@dataclass(frozen=True)
class Answer:
    """What a command said, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self
        return json.loads(self.out)


class Commands:
    def __init__(self, database: Database) -> None:
        self.environment: dict[str, str | None] = {
            "OUTLAST_URL": database.url,
            "OUTLAST_SCHEMA": database.schema,
        }

    def __call__(self, *args: object, input: str | None = None, **env: str) -> Answer:
        result = CliRunner().invoke(
            outlast,
            [str(arg) for arg in args],
            input=input,
            env={**self.environment, **env},
            prog_name="outlast",
        )
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception  # a traceback: what no user may ever see
        return Answer(result.exit_code, result.stdout, result.stderr)


@pytest.fixture
def run(database: Database) -> Commands:
    with Outlast(database.url, schema=database.schema) as made:
        made.migrate()
    return Commands(database)


class Program:
    """A program with tasks in a folder of its own, and workers that run it."""

    SOURCE = """
        import time
        from pathlib import Path
        from outlast import Outlast, Permanent

        ol = Outlast()

        @ol.task
        def add(a: int, b: int = 1) -> int:
            return a + b

        @ol.task
        def give_up(why: str) -> None:
            raise Permanent(why)

        @ol.task(queue="slow")
        def wait_for(file: str) -> str:
            while not Path(file).exists():
                time.sleep(0.01)
            return "seen"
        """

    def __init__(self, processes: Processes, database: Database, folder: Path) -> None:
        with Outlast(database.url, schema=database.schema) as made:
            made.migrate()
        self.processes = processes
        self.folder = folder
        self.environment: dict[str, str | None] = {
            "OUTLAST_URL": database.url,
            "OUTLAST_SCHEMA": database.schema,
            "OUTLAST_LEASE": "6",
            "OUTLAST_RENEW_EVERY": "0.3",
            "OUTLAST_POLL_MAX": "0.2",
        }

    def worker(self, *args: object, app: str = "app:ol", **env: str | None) -> Process:
        return self.processes.python(
            "outlast", "worker", app, *args, env={**self.environment, **env}, cwd=self.folder
        )


@pytest.fixture
def program(processes: Processes, database: Database, tmp_path: Path) -> Program:
    folder = tmp_path / "program"
    folder.mkdir()
    (folder / "app.py").write_text(dedent(Program.SOURCE))
    return Program(processes, database, folder)


async def work_off(ol: Outlast, ready: int = 0) -> None:
    """Carry out, in this process, what is ready, until so many are left that are not for us."""
    async with ol.worker(concurrency=4, poll_max=0.1):

        async def done() -> bool:
            counts = await ol.acounts()
            return (counts["ready"], counts["running"]) == (ready, 0)

        await aeventually(done, timeout=30.0)
    await ol.aclose()
