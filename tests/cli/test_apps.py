"""APP: which program a worker runs, and what is said when there is none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from tests.cli.conftest import patiently
from tests.support import Process, Processes
from tests.support.processes import ROOT


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = {
        "one.py": "from outlast import Outlast\nol = Outlast()\nalias = ol\n",
        "two.py": "from outlast import Outlast\na, b = Outlast(), Outlast()\n",
        "none.py": "import outlast\nnumber = 7\n",
        "broken.py": "from outlast import Outlast\nol = Outlast()\nx = 1 / 0\n",
        "needy.py": "import no_such_dependency\n",
        "garbled.py": "def :\n",
        "badly_set.py": "from outlast import Outlast\nol = Outlast('mysql://u:hunter2@h/d')\n",
        "deep/inner.py": "from outlast import Outlast\nclass Config:\n    ol = Outlast()\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def enqueue(folder: Path, app: str) -> subprocess.CompletedProcess[str]:
    """The cheapest command that loads an app, by the script that users have on their path."""
    script = Path(sys.executable).with_name("outlast")
    return subprocess.run(
        [str(script), "enqueue", "some_task", "--app", app],
        capture_output=True,
        text=True,
        cwd=folder,
        env={"PATH": "", "PYTHONPATH": str(ROOT / "src")},
        check=False,
    )


@pytest.mark.parametrize("app", ["one:ol", "one:alias", "one", "deep.inner:Config.ol"])
def test_an_app_is_found_from_the_working_directory(folder: Path, app: str) -> None:
    ended = enqueue(folder, app)
    assert ended.stderr.startswith("outlast: No task named 'some_task' is registered here"), ended


@pytest.mark.parametrize(
    ("app", "said"),
    [
        ("no_such_module:ol", "cannot be imported: no module 'no_such_module' in"),
        ("deep.missing:ol", "cannot be imported: no module 'deep.missing' in"),
        ("one:missing", "has no 'missing': found one:ol, one:alias"),
        ("none:number", "is of type int, not an Outlast: none creates no Outlast(…)"),
        ("none", "does not name one Outlast: none creates no Outlast(…)"),
        ("two", "does not name one Outlast: found two:a, two:b"),
        ("one:", "must be module:attr"),
        (":ol", "must be module:attr"),
        ("one.py:ol", "must be a module, not a file: write one:ol"),
        ("./deep/inner.py", "must be a module, not a file: write deep.inner"),
        ("broken:ol", "cannot be imported: ZeroDivisionError: division by zero"),
        ("garbled", "cannot be imported: SyntaxError"),
        ("needy", "it needs the module 'no_such_dependency', which is not installed"),
        ("badly_set", "The setting url must be sqlite:///"),
    ],
)
def test_what_is_wrong_with_an_app_is_said_in_one_sentence(
    folder: Path, app: str, said: str
) -> None:
    ended = enqueue(folder, app)
    assert ended.returncode == 1
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "hunter2" not in ended.stderr + ended.stdout
    assert len(ended.stderr.strip().splitlines()) == 1


def test_where_the_program_broke_is_told(folder: Path) -> None:
    assert "broken.py, line 3)" in enqueue(folder, "broken").stderr


def test_the_command_line_wins_over_the_place_in_the_code(
    processes: Processes, tmp_path: Path
) -> None:
    """A program that names its database can still be run on another, with its own processes."""
    (tmp_path / "fixed.py").write_text(
        dedent("""
        from outlast import Outlast
        ol = Outlast("sqlite:///of_the_code.db", schema="of_the_code")

        @ol.task
        def add(a: int) -> int:
            return a + 1
        """)
    )

    def start(*args: str) -> Process:
        return processes.python("outlast", *args, cwd=tmp_path)

    place = ("--url", "sqlite:///said.db", "--schema", "said")
    start("enqueue", "add", "--app", "fixed", "--args", '{"a": 1}', *place).succeed()
    assert not (tmp_path / "of_the_code.db").exists()
    worker = start(*place, "worker", "fixed", "--processes", "2")

    def counts() -> bool:
        listed = start("jobs", "--state", "succeeded", "--json", *place).succeed()
        return '"result": 2' in listed

    patiently(counts, timeout=20, interval=0.3, message=worker.output)
    worker.terminate()
    assert worker.wait() == 0
    assert not (tmp_path / "of_the_code.db").exists()
