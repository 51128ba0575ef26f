"""Cut connections: the server terminates some of the campaign's own."""

from __future__ import annotations

import os
import random
import signal
from contextlib import suppress
from dataclasses import replace

from ..workspace import WorkspaceFactory

CUT_RANGE = (1, 4)  # connections at once


def kill_quietly(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def name_connections(workspaces: WorkspaceFactory) -> None:
    """Name every connection of this run, so that no other one is cut."""
    if not workspaces.is_sqlite:
        address = workspaces.address
        mark = "&" if "?" in address.url else "?"
        workspaces.address = replace(
            address, url=f"{address.url}{mark}application_name={workspaces.prefix}"
        )


class ConnectionCutter:
    """In a child: terminate a few of the campaign's own connections in the server."""

    def __init__(self, workspaces: WorkspaceFactory, rng: random.Random) -> None:
        self.workspaces, self.rng = workspaces, rng

    def __call__(self) -> None:
        import psycopg

        find = (
            "SELECT pid FROM pg_stat_activity"
            " WHERE application_name = %s AND pid <> pg_backend_pid() ORDER BY pid"
        )
        with psycopg.connect(self.workspaces.address.url, autocommit=True) as connection:
            found = [
                pid for (pid,) in connection.execute(find, (self.workspaces.prefix,)).fetchall()
            ]
            for pid in self.rng.sample(found, min(len(found), self.rng.randint(*CUT_RANGE))):
                connection.execute("SELECT pg_terminate_backend(%s)", (pid,))
