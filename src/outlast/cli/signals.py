"""Signals that end a command early."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import NoReturn

AGAIN_AFTER_S = 0.01


def unwind_on_signals() -> None:
    """On SIGTERM, and when the terminal is closed, exit through every `finally`: the terminal is as
    before, processes are ended and files removed. `nohup` stays in force."""
    sys.unraisablehook = _exit_again
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _exit)


class ExitBySignal(SystemExit):
    """The process ends because of a signal."""


def _exit(number: int, _: FrameType | None) -> NoReturn:
    raise ExitBySignal(128 + number)


def _exit_again(unraisable: sys.UnraisableHookArgs) -> None:
    """An exception in a finalizer, or in a callback of a fork, ends that alone: raise it again in a
    moment, somewhere else."""
    if not isinstance(unraisable.exc_value, ExitBySignal):
        sys.__unraisablehook__(unraisable)
        return
    code = int(str(unraisable.exc_value))
    signal.signal(signal.SIGALRM, lambda *_: _exit(code - 128, None))
    signal.setitimer(signal.ITIMER_REAL, AGAIN_AFTER_S)
