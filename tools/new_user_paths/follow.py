"""Do what a page tells, in a folder that is empty, with two terminals at the most."""

from __future__ import annotations

import os
import re
import shlex
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .steps import ROOT, Command, Edit, NewFile, Step
from .terminal import Terminal

COMMAND_LIMIT_S = 300.0
ANSWER_LIMIT_S = 120.0
KILLED_LIMIT_S = 10.0  # until the shell of a killed command has its prompt again
POLL_S = 0.02

_ID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_PID = re.compile(r"\(pid (\d+) on ")
_PACKAGE = re.compile(r"""(?<=\s)(['"]?)outlast(\[[\w,]+\])?\1(?=\s|$)""")


class PathError(Exception):
    """The page does not lead to its end."""


@dataclass(frozen=True, slots=True)
class Timed:
    command: str
    seconds: float
    goes_on: bool


class Reader:
    """A new user: types the commands, one after the other, and looks for the answers.

    Three things differ from the page. `pip` installs this checkout, without its cache; the web
    server has a port of its own; ID and PID are those that were printed.
    """

    def __init__(self, folder: Path, answer_limit_s: float = ANSWER_LIMIT_S) -> None:
        self.timed: list[Timed] = []
        self._folder = folder
        self._answer_limit_s = answer_limit_s
        self._work = folder / "work"
        self._work.mkdir()
        self._port = free_port()
        self._env = environment(folder / "bin", self._port)
        self._terminals: list[Terminal] = []
        self._prepared: list[str] = []  # typed again in a second terminal
        self._printed: dict[str, str] = {}

    def do(self, step: Step) -> None:
        match step:
            case NewFile(name, text):
                file = self._here() / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, "utf-8")
            case Edit(name, before, after):
                self._edit(self._here() / name, before, after)
            case Command():
                began = time.monotonic()
                self._command(step)
                seconds = time.monotonic() - began
                self.timed.append(Timed(step.text, seconds, step.goes_on))

    def close(self) -> None:
        for terminal in self._terminals:
            terminal.close()

    def _command(self, command: Command) -> None:
        text = self._filled(command.text)
        if command.goes_on:
            terminal = self._free_terminal()
            terminal.type(text)
            answered = lambda: command.is_answered_by(terminal.output())  # noqa: E731
            wait(answered, self._answer_limit_s, terminal, text)
            return
        until = time.monotonic() + self._answer_limit_s
        while not command.is_answered_by(output := self._run(self._free_terminal(), text)):
            if time.monotonic() > until:
                raise PathError(f"{text} answers:\n{output}\nThe page says:\n{command.answer}")
        parts = text.split(" && ")
        self._prepared += [part for part in parts if part.startswith(("cd ", ". "))]

    def _run(self, terminal: Terminal, text: str) -> str:
        terminal.type(text)
        wait(lambda: terminal.code is not None, COMMAND_LIMIT_S, terminal, text)
        output = terminal.output()
        if terminal.code:
            raise PathError(f"{text} ended with {terminal.code}:\n{output}")
        for name, pattern in (("ID", _ID), ("PID", _PID)):
            for found in pattern.findall(output):
                self._printed[name] = found
        return output

    def _free_terminal(self) -> Terminal:
        number = len(self._terminals)
        if number == 2:  # what was killed a moment ago may still run
            wait(lambda: self._idle_terminal() is not None, KILLED_LIMIT_S,
                 self._terminals[0], "both terminals are busy")  # fmt: skip
        if (idle := self._idle_terminal()) is not None:
            return idle
        opened = Terminal(self._work, self._env, self._folder / f"terminal-{number}.log")
        self._terminals.append(opened)
        for text in self._prepared:
            self._run(opened, text)
        return opened

    def _idle_terminal(self) -> Terminal | None:
        return next((one for one in self._terminals if one.code is not None), None)

    def _filled(self, text: str) -> str:
        """A command with its blanks filled in, for this checkout and port."""
        for name in ("PID", "ID"):
            blank = re.compile(rf"\b{name}\b")
            if blank.search(text) and name not in self._printed:
                raise PathError(f"{text}: no command before it has printed {name}")
            text = blank.sub(self._printed.get(name, ""), text)
        if text.startswith("pip install"):
            text = _PACKAGE.sub(lambda found: shlex.quote(f"{ROOT}{found[2] or ''}"), text)
        return text.replace("127.0.0.1:8000", f"127.0.0.1:{self._port}")

    def _here(self) -> Path:
        """The folder that the page has changed to."""
        folder = self._work
        for change in self._prepared:
            if change.startswith("cd "):
                folder /= change[3:]
        return folder

    def _edit(self, file: Path, before: str, after: str) -> None:
        if not file.exists():
            raise PathError(f"{file.name} is edited, but no step has made it")
        text = file.read_text("utf-8")
        if text.count(before) != 1:
            raise PathError(f"{file.name} has {text.count(before)} times:\n{before}")
        file.write_text(text.replace(before, after), "utf-8")


def wait(done: Callable[[], bool], limit: float, terminal: Terminal, text: str) -> None:
    until = time.monotonic() + limit
    while not done():
        if time.monotonic() > until:
            raise PathError(f"{text}: not after {limit:g} s\n{terminal.output()}")
        time.sleep(POLL_S)


def environment(folder: Path, port: int) -> dict[str, str]:
    """A new user's: no Outlast on the path, no settings, no cache of packages."""
    folder.mkdir()
    python = folder / "python3"
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    paths = [path for path in os.environ["PATH"].split(os.pathsep) if not has_outlast(path)]
    ours = ("PYTHON", "VIRTUAL_ENV", "OUTLAST", "DJANGO_SETTINGS_MODULE", "MAKE", "COLUMNS")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return kept | {
        "PATH": os.pathsep.join([str(folder), *paths]),
        "OUTLAST": str(ROOT),
        "PIP_NO_CACHE_DIR": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "UVICORN_PORT": str(port),
    }


def has_outlast(folder: str) -> bool:
    return Path(folder, "outlast").exists()


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@contextmanager
def reader(folder: Path, answer_limit_s: float = ANSWER_LIMIT_S) -> Iterator[Reader]:
    made = Reader(folder, answer_limit_s)
    try:
        yield made
    finally:
        made.close()
