"""The tutorial, followed to the letter, with a shorter lease and a shorter count."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.pages import ROOT, Page
from tests.support import Process, Processes, eventually

PAGE = Page(ROOT / "docs" / "tutorial" / "first-job.md")
QUICK = {"OUTLAST_URL": None, "OUTLAST_LEASE": "1.5", "OUTLAST_RENEW_EVERY": "0.5"}


class Reader:
    """Does what the page says, in one folder."""

    def __init__(self, processes: Processes, folder: Path) -> None:
        self.processes = processes
        for name, text in PAGE.files().items():
            (folder / name).write_text(text.replace("up_to=20", "up_to=6"))

    def __call__(self, shown: str, **blanks: str) -> Process:
        """Start a command that the page shows, its blanks filled in."""
        assert f"\n$ {shown}\n" in PAGE.text, f"the tutorial does not show: {shown}"
        for blank, value in blanks.items():
            shown = shown.replace(blank, value)
        program, *words = shown.split()
        if program == "python":
            return self.processes.python(self.processes.folder / words[0], *words[1:], env=QUICK)
        assert program == "outlast"
        return self.processes.python("outlast", *words, env=QUICK)


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
    assert "attempt 2: 6" in second.succeed()
    assert "attempt 1: 6" not in first.output()


def says(beginning: str, command: Process) -> bool:
    """Whether a command said what the page quotes, whatever the numbers and names."""
    (quote,) = re.findall(rf"^> ({re.escape(beginning)}.*)$", PAGE.text, re.MULTILINE)
    pattern = re.sub(r"\w*…", "BLANK", quote)
    pattern = re.sub(r"\d+(\.\d+)? s\b|\b4711\b", "BLANK", pattern)
    return bool(re.search(re.escape(pattern).replace("BLANK", ".+"), command.succeed(timeout=20)))
