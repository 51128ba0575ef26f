"""Faults that need more than a signal to a child of ours."""

from __future__ import annotations

import os
import random
import signal
from contextlib import suppress
from dataclasses import replace

from .place import Site

CUT = (1, 4)  # connections at once


def kill_quietly(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def named(site: Site) -> None:
    """Let every connection of this run say whose it is, so that we cut no others."""
    if not site.is_sqlite:
        address = site.address
        mark = "&" if "?" in address.url else "?"
        site.address = replace(address, url=f"{address.url}{mark}application_name={site.prefix}")


class Cuts:
    """Called in a child: end a few of our own connections in the server."""

    def __init__(self, site: Site, luck: random.Random) -> None:
        self.site, self.luck = site, luck

    def __call__(self) -> None:
        import psycopg

        find = (
            "SELECT pid FROM pg_stat_activity"
            " WHERE application_name = %s AND pid <> pg_backend_pid() ORDER BY pid"
        )
        with psycopg.connect(self.site.address.url, autocommit=True) as connection:
            found = [pid for (pid,) in connection.execute(find, (self.site.prefix,)).fetchall()]
            for pid in self.luck.sample(found, min(len(found), self.luck.randint(*CUT))):
                connection.execute("SELECT pg_terminate_backend(%s)", (pid,))
