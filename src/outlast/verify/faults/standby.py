"""A primary and a standby server of the campaign's own, with promotion and rebuild."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable

from ...model.errors import Unsupported
from ..children import ChildExit, Children
from ..workspace import OWN_SERVER_PAIR
from .failover_cluster import FailoverTimes
from .own_postgres import HOST, USER, OwnPostgres, Poll

COPY_TIMEOUT_S = 60.0  # seconds for a copy of the primary
CATCH_UP_TIMEOUT_S = 30.0  # seconds for a standby to catch up with the primary
RELOAD_WAIT_S = 0.5  # seconds until every process of a server has read a changed setting


class ReplicaNode(OwnPostgres):
    """A server that can be rebuilt as the standby of another one."""

    def follow(self, primary: OwnPostgres, children: Children, poll: Poll) -> None:
        """Start as the standby of a primary, from a copy of it."""
        for path in self.folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        self._copy(primary, children, poll)
        self.set_parameter("synchronous_standby_names", "")
        self.start(children, poll)

    def _copy(self, primary: OwnPostgres, children: Children, poll: Poll) -> None:
        ends: list[ChildExit] = []
        arguments = ("-h", HOST, "-p", str(primary.port), "-U", USER, "-D", "new")
        more = ("-R", "-X", "stream", "-c", "fast", "--no-sync")
        children.start(lambda: self.exec_program("pg_basebackup", *arguments, *more), ends.append)
        until = time.monotonic() + COPY_TIMEOUT_S
        while not ends and time.monotonic() < until:
            poll()
        if not ends or not ends[0].ok:
            raise Unsupported(reason=f"the primary could not be copied: {self.log_text()}")
        for path in (self.folder / "new").iterdir():
            path.rename(self.folder / path.name)
        (self.folder / "new").rmdir()

    def set_parameter(self, name: str, value: str) -> None:
        """Change a setting; immediately if the server runs."""
        with (self.folder / "postgresql.auto.conf").open("a") as file:
            file.write(f"{name} = '{value}'\n")
        if self.pid:
            os.kill(self.pid, signal.SIGHUP)

    def query(self, query: str) -> object:
        """One value, read over a connection that is closed before any fork."""
        import psycopg

        with psycopg.connect(self.url, autocommit=True, connect_timeout=10) as connection:
            row = connection.execute(query).fetchone()
            return row[0] if row else None


class ReplicaPair:
    """Two nodes, of which one is the primary."""

    label = OWN_SERVER_PAIR

    def __init__(self) -> None:
        self.primary, self.standby = self.nodes = (ReplicaNode("failover"), ReplicaNode("failover"))

    def make(self) -> None:
        self.primary.make()
        self.standby.make_like(self.primary)

    @property
    def url(self) -> str:
        return self.url_of()

    def url_of(self, first: ReplicaNode | None = None, **parameters: str) -> str:
        """The URL of the current primary; if both nodes are primaries, of the one named first."""
        ordered = sorted(self.nodes, key=lambda node: node is not first)
        hosts = ",".join(f"{HOST}:{node.port}" for node in ordered)
        options = {"target_session_attrs": "read-write", **parameters}
        words = "&".join(f"{name}={value}" for name, value in options.items())
        return f"postgresql://{USER}@{hosts}/postgres?{words}"

    def start(self, children: Children, poll: Poll) -> None:
        self.primary.start(children, poll)
        self.rebuild(children, poll)

    @property
    def routes(self) -> dict[str, str]:
        return {"hosts": self.url}

    def fail_over(self, poll: Poll) -> FailoverTimes:
        """Stop the primary immediately, and promote the standby."""
        failed_at = time.monotonic()
        self.primary.crash(poll)
        return FailoverTimes(failed_at, self.promote())

    def rebuild(self, children: Children, poll: Poll) -> None:
        """Let the failed node follow the new primary, and wait until it has caught up."""
        self.standby.follow(self.primary, children, poll)
        self.wait_caught_up(poll)

    def wait_caught_up(self, poll: Poll) -> None:
        """Wait until the standby has everything that the primary has committed so far."""
        here = self.primary.query("SELECT pg_current_wal_flush_lsn()")
        query = f"SELECT count(*) FROM pg_stat_replication WHERE flush_lsn >= '{here}'"  # noqa: S608
        self._wait(lambda: bool(self.primary.query(query)), poll, "does not catch up")

    def synchronise(self, poll: Poll) -> None:
        """Acknowledge a commit only after the standby has it."""
        self.primary.set_parameter("synchronous_standby_names", "*")
        query = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
        self._wait(lambda: bool(self.primary.query(query)), poll, "is not synchronous")
        until = time.monotonic() + RELOAD_WAIT_S
        while time.monotonic() < until:
            poll()
        self.wait_caught_up(poll)  # covers commits by processes that had the old setting

    def cut(self) -> None:
        """Disconnect the standby: later commits are lost with the primary."""
        self.standby.set_parameter("primary_conninfo", "")

    def promote(self) -> float:
        """Promote the standby; returns when it was promoted, by the monotonic clock. The old
        primary is not notified."""
        if not self.standby.query("SELECT pg_promote(true, 60)"):
            raise Unsupported(reason=f"the standby is not promoted: {self.standby.log_text()}")
        self.primary, self.standby = self.standby, self.primary
        return time.monotonic()

    def end(self, poll: Poll) -> None:
        for node in self.nodes:
            node.crash(poll)

    def remove(self) -> None:
        for node in self.nodes:
            node.remove()

    def _wait(self, condition: Callable[[], bool], poll: Poll, message: str) -> None:
        until = time.monotonic() + CATCH_UP_TIMEOUT_S
        while not condition():
            if time.monotonic() > until:
                raise Unsupported(reason=f"the standby {message}: {self.standby.log_text()}")
            poll()
