"""A primary and its standby, both of our own, which change places."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from typing import Any

from ..model.errors import Unsupported
from .children import Children, Ended
from .server import HOST, USER, Server, Tick

COPY_SECONDS = 60.0  # the most that a copy of the primary may take
CATCH_UP_SECONDS = 30.0  # the most that a standby may take to have all that the primary has
RELOAD_SECONDS = 0.5  # until every process of a server has read a changed setting


class Node(Server):
    """A server that can be made anew as the standby of another one."""

    def follow(self, primary: Server, children: Children, tick: Tick) -> None:
        """Start as the standby of a primary, from a copy of it."""
        for path in self.folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        self._copy(primary, children, tick)
        self.set("synchronous_standby_names", "")
        self.start(children, tick)

    def _copy(self, primary: Server, children: Children, tick: Tick) -> None:
        ends: list[Ended] = []
        words = ("-h", HOST, "-p", str(primary.port), "-U", USER, "-D", "new")
        more = ("-R", "-X", "stream", "-c", "fast", "--no-sync")
        children.start(lambda: self.execute("pg_basebackup", *words, *more), ends.append)
        until = time.monotonic() + COPY_SECONDS
        while not ends and time.monotonic() < until:
            tick()
        if not ends or not ends[0].well:
            raise Unsupported(reason=f"the primary could not be copied: {self.said()}")
        for path in (self.folder / "new").iterdir():
            path.rename(self.folder / path.name)
        (self.folder / "new").rmdir()

    def set(self, name: str, value: str) -> None:
        """Change a setting, now if the server runs."""
        with (self.folder / "postgresql.auto.conf").open("a") as file:
            file.write(f"{name} = '{value}'\n")
        if self.pid:
            os.kill(self.pid, signal.SIGHUP)

    def ask(self, query: str) -> Any:
        """One value, by a connection of its own, which is gone before anybody forks."""
        import psycopg

        with psycopg.connect(self.url, autocommit=True, connect_timeout=10) as connection:
            row = connection.execute(query).fetchone()
            return row[0] if row else None


class Pair:
    """Two nodes, of which one is the primary."""

    def __init__(self) -> None:
        self.primary = Node("failover")
        try:
            self.standby = Node(like=self.primary)
        except BaseException:
            self.primary.remove()
            raise
        self.nodes = (self.primary, self.standby)

    def url(self, first: Node | None = None, **parameters: str) -> str:
        """The address of whichever is the primary; where both are, of the one named first."""
        ordered = sorted(self.nodes, key=lambda node: node is not first)
        hosts = ",".join(f"{HOST}:{node.port}" for node in ordered)
        said = {"target_session_attrs": "read-write", **parameters}
        words = "&".join(f"{name}={value}" for name, value in said.items())
        return f"postgresql://{USER}@{hosts}/postgres?{words}"

    def start(self, children: Children, tick: Tick) -> None:
        self.primary.start(children, tick)
        self.rebuild(children, tick)

    def rebuild(self, children: Children, tick: Tick) -> None:
        """The standby follows the primary, and has all that it has."""
        self.standby.follow(self.primary, children, tick)
        self.caught_up(tick)

    def caught_up(self, tick: Tick) -> None:
        """Wait until the standby has all that the primary has committed up to now."""
        here = self.primary.ask("SELECT pg_current_wal_flush_lsn()")
        query = f"SELECT count(*) FROM pg_stat_replication WHERE flush_lsn >= '{here}'"  # noqa: S608
        self._wait(lambda: bool(self.primary.ask(query)), tick, "does not catch up")

    def synchronise(self, tick: Tick) -> None:
        """From now on no commit is acknowledged that the standby does not have."""
        self.primary.set("synchronous_standby_names", "*")
        query = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
        self._wait(lambda: bool(self.primary.ask(query)), tick, "is not synchronous")
        until = time.monotonic() + RELOAD_SECONDS
        while time.monotonic() < until:
            tick()
        self.caught_up(tick)  # also what was committed before every process knew

    def cut(self) -> None:
        """The standby hears nothing more: later commits are lost with the primary."""
        self.standby.set("primary_conninfo", "")

    def promote(self) -> float:
        """Make the standby a primary; when it was one, by the monotonic clock. The old one, if it
        lives, knows nothing of it."""
        if not self.standby.ask("SELECT pg_promote(true, 60)"):
            raise Unsupported(reason=f"the standby is not promoted: {self.standby.said()}")
        self.primary, self.standby = self.standby, self.primary
        return time.monotonic()

    def end(self, tick: Tick) -> None:
        for node in self.nodes:
            node.crash(tick)

    def remove(self) -> None:
        for node in self.nodes:
            node.remove()

    def _wait(self, condition: Callable[[], bool], tick: Tick, told: str) -> None:
        until = time.monotonic() + CATCH_UP_SECONDS
        while not condition():
            if time.monotonic() > until:
                raise Unsupported(reason=f"the standby {told}: {self.standby.said()}")
            tick()
