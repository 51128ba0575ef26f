"""`make seeds`: every program on both stores, their tables, one summary, and the verdict."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support import Processes
from tools import run_seeds

HELD = {"seconds": 1.5, "kills": {"a worker": 2}, "figures": {"lost": 0}, "broken": []}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Programs of this test in place of the examples."""
    monkeypatch.setattr(run_seeds, "FOLDER", tmp_path)
    return tmp_path


def write_program(folder: Path, name: str, body: str) -> None:
    store = "'postgresql' if 'SEED_URL' in os.environ else 'sqlite'"
    text = f"import json, os, sys\nstore = {store}\n{body}\n"
    (folder / f"{name}.py").write_text(text)


def run(*arguments: str) -> int:
    return run_seeds.main([*arguments, "--url", "postgresql://unused"])


def test_both_stores_of_each_program_are_shown_and_summed_up(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """R212. The address, which may hold a password, is in no argument."""
    for name in ("crawl", "inbox"):
        hidden = "assert not any('postgresql' in word for word in sys.argv)"
        write_program(folder, name, f"{hidden}\nprint(json.dumps({HELD!r}))")
    assert run("crawl", "inbox") == 0
    shown = capsys.readouterr().out
    assert shown.count("  killed: a worker") == 4
    rows = [line.split() for line in shown.splitlines()[-5:-1]]
    assert [row[:2] for row in rows] == [
        ["inbox", "sqlite"], ["inbox", "postgresql"], ["crawl", "sqlite"], ["crawl", "postgresql"]
    ]  # fmt: skip
    assert {tuple(row[2:]) for row in rows} == {("1.5", "2", "1", "held")}
    assert re.search(r"^4 runs in \d+ s, 8 kills, 0 broken$", shown, re.MULTILINE)


BROKEN = {**HELD, "broken": ["lost: 1, and must be 0"]}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (f"print(json.dumps({BROKEN!r})); sys.exit(1)", "lost: 1, and must be 0"),
        (f"print(json.dumps({BROKEN!r}))", "lost: 1, and must be 0"),
        (f"print(json.dumps({HELD!r})); sys.exit(3)", "it ended with 3"),
        ("sys.exit('redis-server is not installed')", "redis-server is not installed"),
        ("print('{}')", "it printed no report"),
        ("import time; time.sleep(60)", "it printed no report"),
    ],
)
def test_one_run_that_broke_or_did_not_tell_is_the_verdict(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    body: str,
    reason: str,
) -> None:
    """R212: whether it says so, exits with an error, says nothing or does not end."""
    monkeypatch.setattr(run_seeds, "END_S", 2.0)
    fine = f"print(json.dumps({HELD!r}))"
    write_program(folder, "crawl", f"if store == 'sqlite':\n    {fine}\nelse:\n    {body}")
    assert run("crawl", "--limit", "3") == 1
    shown = capsys.readouterr().out
    assert reason in shown
    assert "crawl       sqlite           1.5       2        1  held" in shown
    assert "1 broken" in shown.splitlines()[-1]


def test_an_unknown_program_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run_seeds.main(["crawler"])
    assert ended.value.code == 2
    assert "no such program: crawler; there are inbox, documents," in capsys.readouterr().err


def test_the_programs_are_those_of_the_examples() -> None:
    programs = {
        file.stem for file in run_seeds.FOLDER.glob("*.py") if "def play(" in file.read_text()
    }
    assert programs == set(run_seeds.PROGRAMS)


@pytest.mark.campaign
def test_all_programs_run_on_both_stores_in_under_five_minutes(processes: Processes) -> None:
    """R212: on a PostgreSQL of the runner's own. On a machine without other load."""
    ran = processes.python("tools.run_seeds")
    shown = ran.succeed(timeout=300)
    assert "10 runs in" in shown.splitlines()[-1]
    assert shown.splitlines()[-1].endswith(" 0 broken")
