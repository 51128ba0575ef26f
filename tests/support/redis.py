"""A real Redis server on a port of its own, which a test may stop, kill and start again."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from tests.support.janitor import janitor
from tests.support.ports import free_port
from tests.support.requirements import require_program


class RedisServer:
    """Every write is on disk before it is answered, so that a kill loses nothing."""

    host = "127.0.0.1"

    def __init__(self) -> None:
        self.program = require_program("redis-server")
        self.folder = Path(tempfile.mkdtemp(prefix="outlast-redis-"))
        janitor.watch_folder(self.folder)
        self.log = self.folder / "redis.log"
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://{self.host}:{self.port}/0"

    def start(self) -> None:
        """On the port that it had before, if it had one."""
        for _ in range(5):  # somebody may take the port between the choice and the start
            self.port = self.port or free_port()
            if self._try_start():
                return
            self.port = 0
        raise AssertionError(f"redis-server does not start\n{self.log.read_text()}")

    def _try_start(self) -> bool:
        command = [
            self.program, "--port", str(self.port), "--bind", self.host, "--dir", str(self.folder),
            "--save", "", "--appendonly", "yes", "--appendfsync", "always",
            "--logfile", str(self.log),
        ]  # fmt: skip
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
        )
        janitor.watch_group(self._process.pid)
        deadline = time.monotonic() + 15.0
        while self._process.poll() is None and time.monotonic() < deadline:
            if self._answers():
                return True
            time.sleep(0.01)
        self.kill()
        return False

    def _answers(self) -> bool:
        try:
            with socket.create_connection((self.host, self.port), 1.0) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(16).startswith(b"+PONG")
        except OSError:
            return False

    def pause(self) -> None:
        """It is there, and says nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait(10)
        janitor.forget_group(self._process.pid)
        self._process = None

    def destroy(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
        janitor.forget_folder(self.folder)
