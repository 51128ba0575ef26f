"""Parent pipe: lets children detect the death of their supervisor. No data is ever written to it.

Only the supervisor holds the writing end, so the kernel closes it when the supervisor dies, even
by SIGKILL. A child that reads the end of the pipe drains and exits; a child that cannot drain kills
itself soon after, because its supervisor no longer can.
"""

from __future__ import annotations

import logging
import os
import stat
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .worker import Worker

log = logging.getLogger("outlast.worker")

PIPE_VARIABLE = "OUTLAST_LIFELINE"
ORPHAN_OVERTIME_S = 5.0  # seconds beyond the grace time for an orphan to report its outcomes


class ParentPipe:
    """The supervisor's side: one pipe for all its children."""

    def __init__(self) -> None:
        self.reading, self._writing = os.pipe()

    def environment(self) -> dict[str, str]:
        """The environment of a child, which must also inherit `reading`."""
        return {**os.environ, PIPE_VARIABLE: str(self.reading)}

    def close(self) -> None:
        os.close(self.reading)
        os.close(self._writing)


def watch_parent(worker: Worker) -> bool:
    """The child's side: stop the worker when the supervisor is gone. Returns False without a
    supervisor."""
    # Removed from the environment, so that child processes do not inherit it.
    fd = _pipe_descriptor(os.environ.pop(PIPE_VARIABLE, ""))
    if fd is None:
        return False
    os.set_inheritable(fd, False)
    watching = threading.Thread(
        target=_watch, args=(fd, worker), name="outlast-lifeline", daemon=True
    )
    watching.start()
    return True


def _watch(fd: int, worker: Worker) -> None:
    with suppress(OSError):
        os.read(fd, 1)
    log.warning("the supervisor is gone: draining")
    if not worker.stopping:
        worker.stop()
    time.sleep(worker.settings.grace + ORPHAN_OVERTIME_S)
    os._exit(1)


def _pipe_descriptor(text: str) -> int | None:
    """The descriptor, if it is a pipe: a variable inherited by mistake must not stop the
    worker."""
    try:
        fd = int(text)
        return fd if stat.S_ISFIFO(os.fstat(fd).st_mode) else None
    except (ValueError, OSError, OverflowError):
        return None
