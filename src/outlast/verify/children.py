"""Processes forked from this one, which has everything imported, one thread and no connection: so
a child is ready in milliseconds, and starts with nothing that is not its own.
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

PATIENCE = 300.0  # seconds a child may take, far more than any needs; then it says where it hangs
GAVE_UP = 75  # the exit code of a child that gave up


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child ended, or that it was stopped: by a signal, or by itself."""

    pid: int
    signal: int = 0
    code: int = 0
    stopped: bool = False

    @property
    def well(self) -> bool:
        return not (self.signal or self.code or self.stopped)


Then = Callable[[Ended], None]


class Children:
    """Children, and what is to be done when each has ended (or was stopped)."""

    def __init__(self, noise: Path) -> None:
        self.noise = noise  # what they say on standard error
        self._then: dict[int, Then] = {}
        gc.collect()
        gc.freeze()  # a child that collects would copy every page of ours

    def __len__(self) -> int:
        return len(self._then)

    def start(self, body: Callable[[], object], then: Then) -> int:
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._be_child(body, parent)
        self._then[pid] = then
        return pid

    def step(self) -> None:
        """Wait until one ends or is stopped, and do what is to be done then."""
        self._heard(*os.waitpid(-1, os.WUNTRACED))

    def poll(self) -> None:
        """The same for all that have ended or were stopped by now, without waiting."""
        while self._then:
            pid, status = os.waitpid(-1, os.WUNTRACED | os.WNOHANG)
            if pid == 0:
                return
            self._heard(pid, status)

    def _heard(self, pid: int, status: int) -> None:
        ended = _read(pid, status)
        then = self._then[pid] if ended.stopped else self._then.pop(pid)
        then(ended)

    def call(self, *bodies: Callable[[], object]) -> None:
        """Do things, each in a child, and wait for them; meanwhile others may end."""
        ends: list[Ended] = []
        for body in bodies:
            self.start(body, ends.append)
        while len(ends) < len(bodies):
            self.step()
        if not all(end.well for end in ends):
            raise ChildFailed(self.last_words())

    def last_words(self, most: int = 2000) -> str:
        with suppress(OSError):
            return self.noise.read_text(errors="replace")[-most:].strip()
        return ""

    def end_all(self) -> None:
        for pid in self._then:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in list(self._then):
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)
        self._then.clear()

    def _be_child(self, body: Callable[[], object], parent: int) -> None:
        code = 1
        try:
            die_with_parent(parent)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            noise = os.open(self.noise, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
            os.dup2(noise, 2)
            faulthandler.dump_traceback_later(PATIENCE, exit=True, file=2)
            body()
            os._exit(0)
        except BaseException as error:
            code = GAVE_UP if isinstance(error, GaveUp) else 1
            traceback.print_exc(file=sys.__stderr__)
            with suppress(Exception):
                sys.__stderr__.flush()  # type: ignore[union-attr]
        finally:
            os._exit(code)


class GaveUp(Exception):
    """In a child: it could not talk to the database any more, and shows nothing."""


class ChildFailed(OutlastError):
    """A process that only prepares or looks has failed."""

    def __init__(self, words: str) -> None:
        """`words`: what it said on standard error, a traceback as a rule."""
        last = (words.splitlines() or ["it said nothing"])[-1]
        super().__init__(re.sub(r"^[\w.]+: ", "", last), words=words)


def _read(pid: int, status: int) -> Ended:
    if os.WIFSTOPPED(status):
        return Ended(pid, signal=os.WSTOPSIG(status), stopped=True)
    if os.WIFSIGNALED(status):
        return Ended(pid, signal=os.WTERMSIG(status))
    return Ended(pid, code=os.WEXITSTATUS(status))


def die_with_parent(parent: int | None = None) -> None:
    """A child that is stopped would otherwise outlive a parent that is killed, for ever. A parent
    that was killed before the kernel knew of this wish sends no signal any more."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            set_death_signal = 1
            ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        os._exit(1)
