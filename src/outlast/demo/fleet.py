"""The demo's worker processes: started, killed by SIGKILL, replaced."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from ..verify.workspace import Workspace
from ..worker.parent_pipe import ParentPipe


class Fleet:
    """New interpreters, not forks as in campaigns: some systems cannot fork a process with a live
    display and connections. They end with this process, however it ends."""

    def __init__(self, workspace: Workspace) -> None:
        self._database = {"OUTLAST_URL": workspace.url, "OUTLAST_SCHEMA": workspace.schema}
        self._ledger = workspace.ledger_file
        self._log = workspace.folder / "workers.log"
        self._lifeline = ParentPipe()
        self._workers: list[subprocess.Popen[bytes]] = []
        self.kills: dict[int, float] = {}  # process id → time

    @property
    def pids(self) -> list[int]:
        return [worker.pid for worker in self._workers]

    def start(self) -> None:
        with self._log.open("ab") as log:
            worker = subprocess.Popen(
                [sys.executable, "-m", "outlast.demo.tasks", str(self._ledger)],
                env={**self._lifeline.environment(), **self._database, "PYTHONPATH": _importable()},
                pass_fds=[self._lifeline.reading],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
            )
        self._workers.append(worker)

    def kill(self, busy: set[int]) -> int | None:
        """SIGKILL a worker with running jobs, and start another. None: too few workers are busy,
        because a slow machine is still starting the others."""
        victims = [worker for worker in self._workers if worker.pid in busy]
        if len(victims) <= len(self._workers) // 2:
            return None
        victim = random.choice(victims)
        victim.kill()
        self.kills[victim.pid] = time.monotonic()
        victim.wait()
        self._workers.remove(victim)
        self.start()
        return victim.pid

    def replace_the_dead(self) -> None:
        """A worker that died by itself would be a bug; the demo shows it, and continues."""
        for worker in [worker for worker in self._workers if worker.poll() is not None]:
            self._workers.remove(worker)
            self.start()

    def stop(self) -> None:
        for worker in self._workers:
            worker.terminate()
        deadline = time.monotonic() + 3.0
        for worker in self._workers:
            with suppress(subprocess.TimeoutExpired):
                worker.wait(max(0.0, deadline - time.monotonic()))
            worker.kill()
            worker.wait()
        self._workers.clear()
        self._lifeline.close()

    def log_tail(self, lines: int = 10) -> str:
        """The end of the workers' log, for error reports."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])


def _importable() -> str:
    """The path of this package, before anything in the working directory."""
    here = str(Path(__file__).parents[2])
    return os.pathsep.join(part for part in (here, os.environ.get("PYTHONPATH")) if part)
