"""What the handlers themselves say, in a file that the database knows nothing of.

Each line is appended by one write, so processes that are killed at any instruction leave only
whole lines: what, job, attempt, process, and the time by the clock that all processes share.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

STARTED, DONE, FAILED = "started", "done", "failed"


class HandlerEntry(NamedTuple):
    event: str
    job: str
    attempt: int
    pid: int
    at: float


class HandlerLog:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, event: str, job: str, attempt: int) -> None:
        line = f"{event} {job} {attempt} {os.getpid()} {time.monotonic():.6f}\n"
        os.write(self._fd, line.encode())

    def read(self) -> Iterator[HandlerEntry]:
        for line in self.path.read_text().splitlines():
            what, job, attempt, pid, at = line.split()
            yield HandlerEntry(what, job, int(attempt), int(pid), float(at))

    def close(self) -> None:
        os.close(self._fd)
