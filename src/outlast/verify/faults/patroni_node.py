"""One node of a Patroni cluster: Patroni, and the PostgreSQL server that it starts."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ...model.errors import Unsupported
from ..children import Children
from .own_postgres import Poll
from .own_program import OwnProcess, OwnProgram
from .patroni_config import HOST, SUPERUSER, NodePorts
from .server_process import child_pids, is_in, server_pid

REST_TIMEOUT_S = 2.0


class PatroniNode:
    def __init__(self, ports: NodePorts, folder: Path) -> None:
        self.ports = ports
        self.folder = folder / ports.name
        self.patroni: OwnProcess | None = None  # None until `make`

    def make(self, program: str, config: Mapping[str, object], user: str | None) -> None:
        self.folder.mkdir(mode=0o700)
        file = self.folder / "patroni.json"
        file.write_text(json.dumps(config, indent=2))
        own(self.folder, user)
        self.patroni = OwnProcess(own_program((program, str(file)), self.folder, user))

    def start(self, children: Children) -> None:
        if self.patroni:
            self.patroni.start(children)

    def kill(self, poll: Poll) -> None:
        """SIGKILL Patroni, the server, and every process of the server."""
        server = self._kill_patroni()
        for pid in (server, *child_pids(server)) if server else ():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._wait_ended(server, poll)

    def end(self, poll: Poll) -> None:
        """Stop the server immediately, but not by SIGKILL, which would leave its shared memory."""
        server = self._kill_patroni()
        if server:
            os.kill(server, signal.SIGQUIT)
        self._wait_ended(server, poll)

    def _kill_patroni(self) -> int:
        """Kill Patroni; returns the pid of the server that it leaves."""
        if self.patroni:
            self.patroni.kill()
        return server_pid(self.folder / "data")

    def _wait_ended(self, server: int, poll: Poll) -> None:
        if self.patroni:
            self.patroni.wait_ended(poll)
        while server and is_in(server, self.folder / "data"):
            poll()
            time.sleep(0.001)  # a poll may be a mere check

    def is_primary(self) -> bool:
        """Whether the server accepts writes."""
        with suppress(OSError, Unsupported):
            return self.query("SELECT NOT pg_is_in_recovery()") is True
        return False

    def query(self, query: str) -> object:
        """One value, read over a connection that is closed before any fork."""
        import psycopg

        url = f"postgresql://{SUPERUSER}@{HOST}:{self.ports.postgres}/postgres"
        try:
            with psycopg.connect(url, autocommit=True, connect_timeout=2) as connection:
                row = connection.execute(query).fetchone()
        except psycopg.Error as error:
            raise Unsupported(reason=f"{self.ports.name} does not answer: {error}") from error
        return row[0] if row else None

    def members(self) -> Sequence[Mapping[str, object]]:
        """The cluster as this node's Patroni sees it; empty if it does not answer."""
        connection = http.client.HTTPConnection(HOST, self.ports.rest, timeout=REST_TIMEOUT_S)
        try:
            connection.request("GET", "/cluster")
            members: list[dict[str, object]] = json.loads(connection.getresponse().read())[
                "members"
            ]
        except (OSError, http.client.HTTPException, ValueError, KeyError):
            return ()
        finally:
            connection.close()
        return members

    def log_text(self) -> str:
        return self.patroni.log_text() if self.patroni else "no output"


def own(folder: Path, user: str | None) -> None:
    """Give a folder and its files to the servers' user."""
    if user is not None:
        for path in (folder, *folder.iterdir()):
            shutil.chown(path, user)


def own_program(command: Sequence[str], folder: Path, user: str | None) -> OwnProgram:
    """A program with a clean environment: Patroni may use another Python than the campaign."""
    environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(folder), "LANG": "C"}
    return OwnProgram(command, folder, folder / "log", user, environment)
