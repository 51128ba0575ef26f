"""Programs of a campaign: children that may run as another user and end with the campaign."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..children import ChildExit, Children, die_with_parent

LOG_TAIL = 2000  # characters shown of a log
SYSTEM_PATHS = ("/usr/local/sbin", "/usr/sbin", "/sbin")  # where Debian has servers


@dataclass(frozen=True, slots=True)
class OwnProgram:
    """A command, its working directory, its log, its user (None: the campaign's) and its
    environment."""

    command: Sequence[str]
    folder: Path
    log: Path
    user: str | None
    environment: Mapping[str, str]

    def become(self) -> None:
        """In a child: become the program, in a process group of its own."""
        os.setsid()
        os.chdir(self.folder)
        out = os.open(self.log, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o666)
        if self.user is not None:
            import pwd

            entry = pwd.getpwnam(self.user)
            os.setgroups([])
            os.setgid(entry.pw_gid)
            os.setuid(entry.pw_uid)
            die_with_parent()  # a change of user resets it
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.execve(self.command[0], list(self.command), dict(self.environment))  # noqa: S606


class OwnProcess:
    """A process of a program, running or not; it is killed with its process group."""

    def __init__(self, program: OwnProgram) -> None:
        self.program = program
        self.pid = 0  # 0: not running

    def start(self, children: Children) -> None:
        if not self.pid:
            self.pid = children.start(self.program.become, self._child_ended)

    def kill(self) -> None:
        """Send SIGKILL to the process and its group."""
        if self.pid:
            try:
                os.killpg(self.pid, signal.SIGKILL)
            except ProcessLookupError:  # its group does not exist yet
                os.kill(self.pid, signal.SIGKILL)

    def wait_ended(self, poll: Callable[[], object]) -> None:
        while self.pid:
            poll()
            time.sleep(0.001)  # a poll may be a mere check

    def log_text(self) -> str:
        return log_tail(self.program.log)

    def _child_ended(self, exit: ChildExit) -> None:
        if not exit.stopped:
            self.pid = 0


def log_tail(log: Path) -> str:
    return log.read_text(errors="replace")[-LOG_TAIL:] if log.exists() else "no output"


def find_program(name: str) -> str | None:
    """The path of an installed program, also from directories that only root's PATH has."""
    return shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", ""), *SYSTEM_PATHS)))
