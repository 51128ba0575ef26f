"""Signals that end a command early."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import NoReturn


def unwind_on_signals() -> None:
    """On SIGTERM, and when the terminal is closed, exit through every `finally`: the terminal is as
    before, processes are ended and files removed. `nohup` stays in force."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _exit)


def _exit(number: int, _: FrameType | None) -> NoReturn:
    sys.exit(128 + number)
