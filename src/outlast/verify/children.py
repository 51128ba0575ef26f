"""Forked child processes. The parent has everything imported, one thread and no connection, so that
a child is ready in milliseconds and shares nothing.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..model.errors import OutlastError

CHILD_TIMEOUT_S = 300.0  # far more than any child needs; then it prints its stack
GAVE_UP_EXIT_CODE = 75  # exit code of a child that gave up


@dataclass(frozen=True, slots=True)
class ChildExit:
    """The end or stop of a child: by a signal, or by itself."""

    pid: int
    signal: int = 0
    code: int = 0
    stopped: bool = False

    @property
    def ok(self) -> bool:
        return not (self.signal or self.code or self.stopped)


OnChildExit = Callable[[ChildExit], None]


def freeze_memory() -> None:
    """Freeze objects before the first fork: garbage collection in a child would copy every page."""
    gc.collect()
    gc.freeze()


class Children:
    """Children, each with a callback for its end or stop."""

    def __init__(self, stderr_file: Path) -> None:
        self.stderr_file = stderr_file  # their standard error
        self._on_exit: dict[int, OnChildExit] = {}

    def __len__(self) -> int:
        return len(self._on_exit)

    def start(self, body: Callable[[], object], on_exit: OnChildExit) -> int:
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._run_child(body, parent)
        self._on_exit[pid] = on_exit
        return pid

    def wait(self) -> None:
        """Wait until one ends or is stopped, and call its callback."""
        self._handle_exit(*os.waitpid(-1, os.WUNTRACED))

    def poll(self) -> None:
        """Call the callbacks of all children that have ended or were stopped, without waiting."""
        while self._on_exit:
            pid, status = os.waitpid(-1, os.WUNTRACED | os.WNOHANG)
            if pid == 0:
                return
            self._handle_exit(pid, status)

    def _handle_exit(self, pid: int, status: int) -> None:
        exit = _child_exit(pid, status)
        on_exit = self._on_exit[pid] if exit.stopped else self._on_exit.pop(pid)
        on_exit(exit)

    def run_all(self, *bodies: Callable[[], object]) -> None:
        """Run functions, each in a child, and wait for them; other children may end meanwhile."""
        ends: list[ChildExit] = []
        for body in bodies:
            self.start(body, ends.append)
        while len(ends) < len(bodies):
            self.wait()
        if not all(end.ok for end in ends):
            raise ChildFailed(self.stderr_tail())

    def stderr_tail(self, limit: int = 2000) -> str:
        with suppress(OSError):
            return self.stderr_file.read_text(errors="replace")[-limit:].strip()
        return ""

    def kill_all(self) -> None:
        for pid in self._on_exit:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in list(self._on_exit):
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)
        self._on_exit.clear()

    def _run_child(self, body: Callable[[], object], parent: int) -> None:
        code = 1
        try:
            die_with_parent(parent)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            stderr = os.open(self.stderr_file, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
            os.dup2(stderr, 2)
            faulthandler.dump_traceback_later(CHILD_TIMEOUT_S, exit=True, file=2)
            body()
            os._exit(0)
        except BaseException as error:
            code = GAVE_UP_EXIT_CODE if isinstance(error, GaveUp) else 1
            traceback.print_exc(file=sys.__stderr__)
            with suppress(Exception):
                sys.__stderr__.flush()  # type: ignore[union-attr]
        finally:
            os._exit(code)


class GaveUp(Exception):
    """In a child: the database is unreachable, so the run proves nothing."""


class ChildFailed(OutlastError):
    """A process that only prepares or inspects has failed."""

    def __init__(self, stderr: str) -> None:
        """`stderr`: the child's standard error, usually a traceback."""
        last = (stderr.splitlines() or ["no output"])[-1]
        super().__init__(re.sub(r"^[\w.]+: ", "", last), words=stderr)


def _child_exit(pid: int, status: int) -> ChildExit:
    if os.WIFSTOPPED(status):
        return ChildExit(pid, signal=os.WSTOPSIG(status), stopped=True)
    if os.WIFSIGNALED(status):
        return ChildExit(pid, signal=os.WTERMSIG(status))
    return ChildExit(pid, code=os.WEXITSTATUS(status))


def die_with_parent(parent: int | None = None) -> None:
    """Die with the parent: a stopped child would otherwise outlive a killed parent for ever. If the
    parent was killed before this request, the kernel sends no signal."""
    _set_death_signal(signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        os._exit(1)


def outlive_parent() -> None:
    """For a child that cleans up after a killed parent."""
    _set_death_signal(0)


def _set_death_signal(number: int) -> None:
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            set_death_signal = 1
            ctypes.CDLL(None).prctl(set_death_signal, number)
