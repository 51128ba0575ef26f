"""A process that cleans up after a test run that was itself killed.

Fixtures end what they started, but `kill -9` on pytest (or a crash of its interpreter) runs no
fixture. So each run tells its janitor what it starts, over a pipe; when the pipe closes, whatever
is still on the list is ended: process groups first, then folders.
"""

from __future__ import annotations

import atexit
import subprocess
import sys
import threading
from pathlib import Path

_SCRIPT = """
import os, shutil, signal, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
groups, folders = set(), set()
for line in sys.stdin:
    sign, kind, what = line.rstrip("\\n").split(" ", 2)
    known = groups if kind == "group" else folders
    known.add(what) if sign == "+" else known.discard(what)
for group in groups:
    try:
        os.killpg(int(group), signal.SIGKILL)
    except OSError:
        pass
if groups and folders:
    time.sleep(0.5)
for folder in folders:
    shutil.rmtree(folder, ignore_errors=True)
"""


class Janitor:
    """The list of what must not outlive this run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def watch_group(self, pid: int) -> None:
        self._tell(f"+ group {pid}")

    def forget_group(self, pid: int) -> None:
        self._tell(f"- group {pid}")

    def watch_folder(self, folder: Path) -> None:
        self._tell(f"+ folder {folder}")

    def forget_folder(self, folder: Path) -> None:
        self._tell(f"- folder {folder}")

    def _tell(self, line: str) -> None:
        with self._lock:
            pipe = self._started().stdin
            assert pipe is not None
            pipe.write(line + "\n")
            pipe.flush()

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _SCRIPT],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
            )
            atexit.register(self._dismiss)
        return self._process

    def _dismiss(self) -> None:
        if self._process is not None:
            self._process.communicate()


janitor = Janitor()
