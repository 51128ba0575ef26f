"""Processes of a seed that are really killed, and loopback ports for its servers."""

from __future__ import annotations

import os
import random
import socket
import subprocess
from collections.abc import Sequence
from contextlib import suppress

from inside import folder


class Process:
    """A process that may be killed, paused, and started again by the same command."""

    def __init__(self, name: str, command: Sequence[str], env: dict[str, str]) -> None:
        self.name, self._command, self._env = name, command, env
        self.restart()

    def restart(self) -> None:
        self._out = folder() / f"{self.name}.out"
        with self._out.open("ab") as out:
            self._silent = out.tell()
            self._popen = subprocess.Popen(
                self._command, env={**os.environ, **self._env},
                stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def alive(self) -> bool:
        return self._popen.poll() is None

    @property
    def ready(self) -> bool:
        """Whether it is alive and has printed a line, as each does when it is up."""
        return self.alive and self._out.stat().st_size > self._silent

    def signal(self, number: int) -> None:
        """SIGSTOP makes it a process that hangs, SIGCONT one that comes back."""
        self._popen.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._popen.kill()
        self._popen.wait()


def free_port() -> int:
    """A loopback port, below the range from which outgoing connections take theirs."""
    for port in random.SystemRandom().sample(range(20_000, 30_000), 200):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no free port")


def answers(port: int) -> bool:
    """Whether a server listens on a port."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
        return True
    return False
