"""Server processes that are not children of the campaign, found by their data folders."""

from __future__ import annotations

import faulthandler
import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ..children import outlive_parent

GUARD_POLL_S = 0.2


def guard_servers(campaign: int, folders: Sequence[Path]) -> None:
    """In a child: if the campaign is killed, stop the servers, which are not its children."""
    faulthandler.cancel_dump_traceback_later()
    outlive_parent()
    os.setsid()  # so that it is not killed with the campaign's group
    while os.getppid() == campaign:
        time.sleep(GUARD_POLL_S)
    for folder in folders:
        if pid := server_pid(folder):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGQUIT)


def server_pid(folder: Path) -> int:
    """The process of the server that runs in a folder; 0: none does."""
    try:
        pid = int((folder / "postmaster.pid").read_text().split("\n", 1)[0])
    except (OSError, ValueError):
        return 0
    return pid if is_in(pid, folder) else 0


def is_in(pid: int, folder: Path) -> bool:
    """Whether a process runs in this folder: process ids are reused."""
    try:
        return Path(f"/proc/{pid}/cwd").readlink() == folder.resolve()
    except OSError:
        return False


def child_pids(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(child) for child in children.split()]
