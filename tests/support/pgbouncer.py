"""A real pgbouncer in transaction mode, in front of a server."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.support.janitor import janitor
from tests.support.ports import free_port
from tests.support.postgres import Postgres, run_as
from tests.support.requirements import require_program

# Everything that is not here has its default, as in production: above all no
# ignore_startup_parameters, and a server_reset_query that transaction mode does not run.
CONFIGURATION = """\
[databases]
* = host={server.host} port={server.port}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users.txt
admin_users = {server.user}
pool_mode = transaction
default_pool_size = 10
max_client_conn = 500
pidfile =
"""


class PgBouncer:
    """A transaction pooler: statements outside a transaction may each run on another backend."""

    host = "127.0.0.1"

    def __init__(self, server: Postgres) -> None:
        self.server = server
        self.program = require_program("pgbouncer")
        self.folder = Path(tempfile.mkdtemp(prefix="outlast-pgbouncer-"))
        janitor.watch_folder(self.folder)
        self.log = self.folder / "pgbouncer.log"
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://{self.server.user}@{self.host}:{self.port}/{database}"

    def start(self) -> None:
        for _ in range(5):  # somebody may take the port between the choice and the start
            self.port = free_port()
            if self._try_start():
                return
        raise AssertionError(f"pgbouncer does not start\n{self.log.read_text()}")

    def stop(self) -> None:
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)  # at once, without waiting for clients
        self._process.wait(10)
        janitor.forget_group(self._process.pid)
        self._process = None

    def destroy(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
        janitor.forget_folder(self.folder)

    def admin(self, *commands: str) -> list[dict[str, Any]]:
        """Run admin commands, such as "SHOW POOLS" or "KILL postgres"; the last one's rows."""
        import psycopg
        from psycopg.rows import dict_row

        # The console speaks only the simple protocol, and only in UTF-8 without asking.
        with psycopg.connect(
            self.url("pgbouncer"), autocommit=True, cursor_factory=psycopg.ClientCursor
        ) as console:
            cursor = console.cursor(row_factory=dict_row)
            for command in commands:
                cursor.execute(command.encode())
            return cursor.fetchall() if cursor.description else []

    def renew_backends(self) -> None:
        """Use fresh backends from now on: what one test left in a session stays in that test."""
        self.admin("RECONNECT")

    def end_sessions(self, database: str = "postgres") -> None:
        """End every client of a database, and the backends that served them, at once."""
        self.admin(f"KILL {database}", f"RESUME {database}")

    def _try_start(self) -> bool:
        configuration = self.folder / "pgbouncer.ini"
        users = self.folder / "users.txt"
        configuration.write_text(
            CONFIGURATION.format(server=self.server, port=self.port, folder=self.folder)
        )
        users.write_text(f'"{self.server.user}" ""\n')
        self._hand_over()
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [self.program, configuration],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **run_as(self.server.system_user),
            )
        janitor.watch_group(process.pid)
        deadline = time.monotonic() + 10
        while process.poll() is None and time.monotonic() < deadline:
            if self._listens():
                self._process = process
                return True
            time.sleep(0.01)
        process.kill()
        process.wait()
        janitor.forget_group(process.pid)
        return False

    def _hand_over(self) -> None:
        """Give the folder to the user who will run pgbouncer, if that is somebody else."""
        if self.server.system_user is not None:
            for path in (self.folder, *self.folder.iterdir()):
                shutil.chown(path, self.server.system_user)

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((self.host, self.port)) == 0
