"""A password is in no argument of a process that we start: other users can read those."""

from __future__ import annotations

import sys
from contextlib import suppress

import psutil
import pytest

from tests.cli.conftest import Program, patiently
from tests.cli.test_secrets import SECRET, with_password
from tests.support import Database, Process, Processes

pytestmark = pytest.mark.kinds("postgres")


def arguments_of_children(process: Process) -> list[list[str]]:
    """The arguments of every process below this one, at this moment."""
    found = []
    with suppress(psutil.Error):
        for child in psutil.Process(process.pid).children(recursive=True):
            with suppress(psutil.Error):
                found.append(child.cmdline())
    return [arguments for arguments in found if arguments]


def test_a_supervisor_passes_its_url_on_without_showing_it(
    program: Program, database: Database
) -> None:
    """R233: said with --url, which must win over what the app and the environment say."""
    url = with_password(database.url)
    source = program.folder / "app.py"
    source.write_text(source.read_text().replace("Outlast()", "Outlast('sqlite:///not_here.db')"))
    worker = program.worker("--processes", "2", "--url", url, OUTLAST_URL="sqlite:///nor_here.db")
    run_by = "SELECT count(*) FROM worker"
    patiently(lambda: database.rows(run_by)[0][0] == 2, message=worker.output)
    children = arguments_of_children(worker)
    assert len([line for line in children if "worker" in line]) == 2
    assert SECRET not in str(children)
    worker.terminate()
    assert worker.wait(30) == 0
    assert SECRET not in worker.output()
    assert not (program.folder / "not_here.db").exists()


HIRED = """
import sys
from pathlib import Path
from outlast.verify.supervised import run_supervisor
from outlast.verify.workspace import Workspace
from outlast.verify.workload import Workload
import os
place = Workspace(os.environ["PLACE"], os.environ["SCHEMA"], Path(os.environ["FOLDER"]))
work = Workload(place)
work.ol.migrate()
assert "hunter2" not in repr(place)
run_supervisor(work, {"grace": 5.0}, 1)
"""


def test_the_workers_of_a_campaign_are_not_given_the_url_as_an_argument(
    processes: Processes, database: Database, tmp_path: object
) -> None:
    """R233: `verify` has supervisors of its own."""
    env = {"PLACE": with_password(database.url), "SCHEMA": database.schema, "FOLDER": str(tmp_path)}
    hiring = processes.python(HIRED, env=env)
    patiently(lambda: len(arguments_of_children(hiring)) == 2, message=hiring.output)
    children = arguments_of_children(hiring)
    assert any("outlast.verify.supervised" in line for line in children), children
    assert SECRET not in str(children)
    hiring.terminate()
    hiring.wait(30)


@pytest.mark.campaign
@pytest.mark.parametrize(
    "command",
    [
        ["bench", "--cell", "drain", "--rounds", "1"],
        ["demo", "--jobs", "500"],
        ["verify", "recovery", "--times", "2"],
        ["verify", "crash", "--points", "20"],
    ],
    ids=" ".join,
)
def test_no_command_gives_its_children_the_password_as_an_argument(
    processes: Processes, database: Database, command: list[str]
) -> None:
    """R233: every child of every command that has some."""
    env = {"OUTLAST_URL": with_password(database.url), "OUTLAST_SCHEMA": database.schema}
    running = processes.run(sys.executable, "-m", "outlast", *command, env=env)
    seen: list[list[str]] = []
    while not running.ended:
        seen += arguments_of_children(running)
        assert SECRET not in str(seen)
    assert seen
    assert SECRET not in running.output()
