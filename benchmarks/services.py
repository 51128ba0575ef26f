"""The servers that a run needs, started for it on loopback and gone with it."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.ports import free_port
from tests.support.postgres import Postgres

# As durable as it can be; memory and log as a server has that is more than a toy.
DURABLE = {
    "max_connections": "1000",
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "1GB",
    "max_wal_size": "4GB",
}


@contextmanager
def postgres() -> Iterator[str]:
    server = Postgres(**DURABLE)
    server.start()
    try:
        yield server.url()
    finally:
        server.destroy()


@contextmanager
def redis() -> Iterator[str | None]:
    """None: there is no such program here. Its log is synced every second, as it comes: at most a
    second of what was acknowledged can be lost."""
    program = shutil.which("redis-server")
    if program is None:
        yield None
        return
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="outlast-bench-redis-") as folder:
        settings = ["--port", str(port), "--bind", "127.0.0.1", "--dir", folder, "--save", ""]
        durable = ["--appendonly", "yes", "--appendfsync", "everysec"]
        server = subprocess.Popen([program, *settings, *durable], stdout=subprocess.DEVNULL)
        try:
            _answers(port, time.monotonic() + 20)
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            server.terminate()
            server.wait(30)


def _answers(port: int, until: float) -> None:
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
