"""What handlers really did, told by themselves: a file that only grows.

Each line is one write with O_APPEND, so that lines of many processes never mix and a process that
is killed leaves a whole line or none. Nothing of Outlast is involved: it is the witness.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing a handler did: it began, or it was about to return."""

    job: str
    fence: int
    attempt: int
    what: str  # "began" or "ended"
    pid: int
    at: float  # time.monotonic(), which all processes of one machine share


class Ledger:
    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, job: str, fence: int, attempt: int, what: str) -> None:
        line = json.dumps([job, fence, attempt, what, os.getpid(), time.monotonic()]) + "\n"
        fd = os.open(self.path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
        try:
            os.write(fd, line.encode())
        finally:
            os.close(fd)

    def read(self) -> Iterator[Entry]:
        if not self.path.exists():
            return
        with self.path.open() as lines:
            for line in lines:
                if line.endswith("\n"):
                    yield Entry(*json.loads(line))
