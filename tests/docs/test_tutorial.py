"""The tutorial, followed to the letter, but for how long it counts: the first time until it is
killed, however slow this machine is, and the second time quickly."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.pages import ROOT, Page
from tests.support import Process, Processes, eventually
from tools.new_user_paths.steps import answer_pattern

PAGE = Page(ROOT / "docs" / "tutorial" / "first-job.md")
HERE = {"OUTLAST_URL": None}
PACE = {"time.sleep(0.5)": "time.sleep(0.02 if ctx.attempt > 1 else number)"}


class Reader:
    """Does what the page says, in one folder."""

    def __init__(self, processes: Processes, folder: Path) -> None:
        self.processes = processes
        files = PAGE.files()
        for shown, quicker in PACE.items():
            assert shown in files["app.py"]
            files["app.py"] = files["app.py"].replace(shown, quicker)
        for name, text in files.items():
            (folder / name).write_text(text)

    def __call__(self, shown: str, **blanks: str) -> Process:
        """Start a command that the page shows, its blanks filled in."""
        assert f"\n$ {shown}\n" in PAGE.text, f"the tutorial does not show: {shown}"
        for blank, value in blanks.items():
            shown = shown.replace(blank, value)
        program, *words = shown.split()
        if program == "python":
            return self.processes.python(self.processes.folder / words[0], *words[1:], env=HERE)
        assert program == "outlast"
        return self.processes.python("outlast", *words, env=HERE)


def test_the_tutorial_can_be_followed_to_its_end(processes: Processes, tmp_path: Path) -> None:
    """R012, R027, R042, R199"""
    reader = Reader(processes, tmp_path)
    id = reader("python send.py").succeed().strip()
    assert id in reader("outlast jobs").succeed()
    assert says("No worker is alive", reader("outlast job ID", ID=id))

    first = reader("outlast worker app:ol")
    eventually(lambda: "attempt 1: 2" in first.output(), timeout=20, message=first.output)
    asked = reader("outlast job ID", ID=id)
    assert says("It is running on worker", asked)
    assert f"(pid {first.pid} on " in asked.output()

    first.kill()
    second = reader("outlast worker app:ol")
    eventually(lambda: "attempt 2: 1" in second.output(), timeout=20, message=second.output)
    eventually(
        lambda: says("It succeeded on", reader("outlast job ID", ID=id)), timeout=30, interval=0.5
    )
    second.interrupt()
    assert "attempt 2: 20" in second.succeed()
    assert "attempt 1: 20" not in first.output()


def says(beginning: str, command: Process) -> bool:
    """Whether a command said what the page quotes, whatever the numbers and names."""
    (quote,) = re.findall(rf"^> ({re.escape(beginning)}.*)$", PAGE.text, re.MULTILINE)
    return bool(answer_pattern(quote).search(command.succeed(timeout=20)))
