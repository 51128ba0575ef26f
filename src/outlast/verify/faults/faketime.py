"""libfaketime: processes whose wall clock can be stepped while they run.

The library is preloaded and reads the offset of the clock from a file at every call, so that one
write to this file steps the clock of all processes. Their monotonic clock stays correct, as on a
machine whose date is set.
"""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ...model.errors import Unsupported

FOLDERS = ("/usr/lib", "/usr/lib64", "/usr/local/lib", "/lib", "/opt/lib")
NAMES = ("libfaketimeMT.so.1", "libfaketime.so.1")  # the first one is for threads
OFFSET_FILE_VARIABLE = "FAKETIME_TIMESTAMP_FILE"
NOT_INSTALLED = (
    "the campaign steps the clock of its processes with libfaketime, which was not found: install"
    " the package faketime (Debian, Ubuntu) or libfaketime (Fedora, Alpine, Arch)"
)


def library() -> str:
    """The path of libfaketime."""
    if sys.platform != "linux":
        raise Unsupported(reason="a stepped clock needs Linux, where libfaketime can be preloaded")
    for name in NAMES:
        for folder in FOLDERS:
            for pattern in (f"faketime/{name}", f"*/faketime/{name}", name, f"*/{name}"):
                if found := sorted(Path(folder).glob(pattern)):
                    return str(found[0])
    if path := _from_program():
        return path
    raise Unsupported(reason=NOT_INSTALLED)


def _from_program() -> str:
    """The library that the faketime command itself preloads."""
    program = shutil.which("faketime")
    if program is None:
        return ""
    command = [program, "-f", "+0", "sh", "-c", "echo $LD_PRELOAD"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


class SteppedClock:
    """The offset of a clock, in a file that processes under `environment` read."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.offset = 0
        self.set(0)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "LD_PRELOAD": library(),
            OFFSET_FILE_VARIABLE: str(self.file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DISABLE_SHM": "1",
        }

    def step(self, seconds: int) -> None:
        self.set(self.offset + seconds)

    def set(self, offset: int) -> None:
        """Set the offset atomically, so that no process reads a partial one."""
        self.offset = offset
        written = self.file.with_suffix(".new")
        written.write_text(f"{offset:+d}\n")
        written.chmod(0o644)
        written.replace(self.file)


def own_clock() -> SteppedClock:
    """The clock of this process, which restarts under libfaketime unless it runs under it."""
    if file := os.environ.get(OFFSET_FILE_VARIABLE):
        time.sleep = _sleep  # type: ignore[assignment]
        return SteppedClock(Path(file))
    clock = SteppedClock(Path(tempfile.mkdtemp(prefix="outlast-verify-clock-")) / "offset")
    try:
        environment = os.environ | clock.environment
        command = [sys.executable, *sys.orig_argv[1:]]
        os.execve(sys.executable, command, environment)  # noqa: S606
    except BaseException:
        remove(clock)
        raise


def _sleep(seconds: float) -> None:
    """Sleep, ignoring EINVAL: Python sleeps until a monotonic time, which libfaketime converts to a
    duration, and fails if the time has just passed."""
    select.select([], [], [], max(0.0, seconds))


def remove(clock: SteppedClock) -> None:
    shutil.rmtree(clock.file.parent, ignore_errors=True)
