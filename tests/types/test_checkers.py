"""mypy --strict and pyright know the API: correct uses pass, and each mistake is found."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CORRECT, MISTAKES = HERE / "correct.py", HERE / "mistakes.py"
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
MARK = re.compile(r"# error: ([\w -]+) \| ([\w ]+)$")

Found = dict[int, set[str]]  # by line, the rules that are broken there


def expected(checker: str) -> Found:
    """What the comments say that it finds."""
    lines = enumerate(MISTAKES.read_text().splitlines(), start=1)
    marks = {number: MARK.search(line) for number, line in lines if "# error" in line}
    group = 1 if checker == "mypy" else 2
    return {number: set(mark.group(group).split()) for number, mark in marks.items() if mark}


@pytest.fixture(scope="module", params=["mypy", "pyright"])
def checked(request: pytest.FixtureRequest) -> tuple[str, dict[Path, Found]]:
    """A checker, and what it says about each file."""
    return request.param, (mypy if request.param == "mypy" else pyright)()


@pytest.mark.slow
def test_correct_uses_and_examples_pass(checked: tuple[str, dict[Path, Found]]) -> None:
    _, found = checked
    assert {path.name: dict(errors) for path, errors in found.items() if path != MISTAKES} == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["agent", "seeds"])
def test_examples_of_several_files_pass_mypy(name: str) -> None:
    """By themselves, as their modules import each other; pyright reads them with the others."""
    folder = ROOT / "examples" / name
    command = [sys.executable, "-m", "mypy", "--strict", *map(str, folder.glob("*.py"))]
    env = os.environ | {"MYPYPATH": str(folder)}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout


@pytest.mark.slow
def test_each_mistake_is_found_and_nothing_else(checked: tuple[str, dict[Path, Found]]) -> None:
    checker, found = checked
    assert found[MISTAKES] == expected(checker)


def test_correct_uses_are_correct_when_they_run() -> None:
    """What checkers accept is accepted: the tasks can be defined so, and called so."""
    run = "from tests.types import correct; correct.plain(7); correct.batch([1])"
    subprocess.run([sys.executable, "-c", run], check=True, cwd=ROOT)


def mypy() -> dict[Path, Found]:
    said = run("mypy", "--strict", "--output", "json", CORRECT, MISTAKES, *EXAMPLES)
    rows = [json.loads(line) for line in said.splitlines()]
    return by_line(
        (ROOT / row["file"], row["line"], row["code"]) for row in rows if row["severity"] == "error"
    )


def pyright() -> dict[Path, Found]:
    """By basedpyright, which is pyright with its Node.js in a wheel; only pyright's own rules."""
    chosen = ("--project", HERE / "pyright.json", "--pythonpath", sys.executable)
    said = run("basedpyright", *chosen, "--outputjson")
    return by_line(
        (Path(row["file"]), row["range"]["start"]["line"] + 1, row["rule"])
        for row in json.loads(said)["generalDiagnostics"]
        if row["severity"] == "error"
    )


def run(checker: str, *arguments: str | Path) -> str:
    """What it prints. It ends with 1 when it finds errors, and with more when it cannot work."""
    command = [sys.executable, "-m", checker, *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stdout, done.stderr  # there are mistakes to be found
    return done.stdout


def by_line(errors: Iterable[tuple[Path, int, str]]) -> dict[Path, Found]:
    found: dict[Path, Found] = defaultdict(lambda: defaultdict(set))
    for path, line, rule in errors:
        found[path][line].add(rule)
    return found
