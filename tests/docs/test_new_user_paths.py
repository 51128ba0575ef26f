"""The paths of a new user are complete, and `tools.new_user_paths` notices if they are not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tools.new_user_paths.__main__ import follow
from tools.new_user_paths.follow import PathError, Reader, reader
from tools.new_user_paths.steps import PATHS, Command, Edit, read_diff

RUNNING = "It is running on worker"
SUCCEEDED = "It succeeded on attempt 2."
OTHER_ANSWER_S = 0.5


@pytest.mark.parametrize("name", PATHS)
def test_a_path_leads_from_pip_to_a_job_that_survived(name: str) -> None:
    """Each page has all of it, as commands: an environment of its own, the installation, a
    worker that is killed in the middle of the job, another one, and the job's end."""
    commands = [step for step in PATHS[name].steps() if isinstance(step, Command)]
    texts = [command.text for command in commands]
    page = (ROOT / PATHS[name].page).read_text("utf-8")
    assert all(f"\n$ {text}\n" in page for text in texts)
    environment = texts.index("python3 -m venv .venv && . .venv/bin/activate")
    assert texts[environment + 1].startswith("pip install ")
    kill = texts.index("kill -9 PID")
    assert (commands[kill - 1].answer or "").startswith(RUNNING)
    first, second = (command for command in commands if command.goes_on)
    assert first == second and commands.index(first) < kill and commands[kill + 1] == second
    assert commands[-1].answer == SUCCEEDED


@pytest.fixture
def user(tmp_path: Path) -> Iterator[Reader]:
    with reader(tmp_path, OTHER_ANSWER_S) as made:
        yield made


def test_values_that_were_printed_fill_the_blanks(user: Reader) -> None:
    user.do(Command("mkdir here && cd here"))
    user.do(Command("echo 01a1f1e6-f7b6-7024-90f7-c54ca0bbf01d, '(pid 4712 on host)'"))
    user.do(Command("test $(basename $PWD) = here && echo ID PID", answer="01a1f1e6-… 4711"))
    assert [one.command for one in user.timed][-1].endswith("echo ID PID")


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (Command("false"), "false ended with 1"),
        (Command("outlast jobs"), "outlast jobs ended with 127"),  # nothing is installed
        (Command("echo It is waiting.", answer=SUCCEEDED), SUCCEEDED),
        (Command("kill -9 PID"), "no command before it has printed PID"),
        (Edit("settings.py", "a", "b"), "settings.py is edited, but no step has made it"),
    ],
    ids=str,
)
def test_a_page_that_is_not_enough_is_noticed(
    user: Reader, step: Command | Edit, reason: str
) -> None:
    with pytest.raises(PathError, match=reason):
        user.do(step)


def test_a_diff_names_its_file() -> None:
    assert read_diff("--- a.py\n b\n-c\n+d\n") == Edit("a.py", "b\nc\n", "b\nd\n")
    with pytest.raises(ValueError, match="begins with `--- FILE`"):
        read_diff("-c\n+d\n")


@pytest.mark.slow
def test_the_plain_path_can_be_followed() -> None:
    """R042: `python -m tools.new_user_paths` runs the others, too."""
    timed = follow("plain")
    assert [one.command for one in timed][-1] == "outlast job ID"
