"""A cluster of three PostgreSQL servers under Patroni, with etcd and HAProxy, on loopback.

    etcd        the name of the primary, in a key with a time to live
    n1 n2 n3    Patroni, each with its PostgreSQL server
    haproxy     one address, which leads to the primary

Each is a child of the campaign, except for the servers: Patroni starts them detached, so that they
outlive it. A guard stops them if the campaign is killed.
"""

from __future__ import annotations

import os
import random
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from ...model.errors import Unsupported
from ..children import Children
from ..workspace import OWN_CLUSTER
from .failover_cluster import FailoverTimes
from .own_postgres import SETTINGS, Poll, initialise
from .own_program import OwnProcess, find_program
from .patroni_config import (
    HOST,
    SUPERUSER,
    NodePorts,
    etcd_arguments,
    haproxy_config,
    is_whole,
    leader_name,
    node_config,
)
from .patroni_node import PatroniNode, own, own_program
from .server_process import guard_servers

PACKAGES = {"patroni": "patroni", "etcd": "etcd-server", "haproxy": "haproxy"}  # on Debian
NODE_NAMES = ("n1", "n2", "n3")
START_TIMEOUT_S = 120.0  # seconds for the cluster to be whole
FAILOVER_TIMEOUT_S = 60.0  # seconds for a new primary
WHOLE_POLL_S = 0.2  # seconds between two polls of the cluster
PRIMARY_POLL_S = 0.02  # seconds between two polls for a new primary
PORT_RANGE = (10_240, 32_000)  # below the ports of outgoing connections
PARAMETERS = {name: value for name, value in SETTINGS.items() if name != "listen_addresses"}


class PatroniCluster:
    """Three nodes, with at least one synchronous standby."""

    label = OWN_CLUSTER

    def __init__(self) -> None:
        self.folder = Path(tempfile.gettempdir(), f"outlast-verify-patroni-{secrets.token_hex(8)}")
        ports = iter(free_ports(2 * len(NODE_NAMES) + 3))
        self.nodes = [
            PatroniNode(NodePorts(name, next(ports), next(ports)), self.folder)
            for name in NODE_NAMES
        ]
        self._etcd_ports, self._proxy_port = (next(ports), next(ports)), next(ports)
        self._services: list[OwnProcess] = []
        self._killed: PatroniNode | None = None

    @property
    def url(self) -> str:
        return self.routes["hosts"]

    @property
    def routes(self) -> dict[str, str]:
        hosts = ",".join(f"{HOST}:{node.ports.postgres}" for node in self.nodes)
        return {
            "hosts": f"postgresql://{SUPERUSER}@{hosts}/postgres?target_session_attrs=read-write",
            "proxy": f"postgresql://{SUPERUSER}@{HOST}:{self._proxy_port}/postgres",
        }

    def make(self) -> None:
        commands = find_commands(find_program)
        self.folder.mkdir(mode=0o700)
        template = self.folder / "template"
        template.mkdir(mode=0o700)
        programs, user = initialise(template, "failover")
        shutil.rmtree(template)
        own(self.folder, user)
        parameters = {**PARAMETERS, "hot_standby": "on"}
        for node in self.nodes:
            config = node_config(node.ports, node.folder, programs, self._etcd_ports[0], parameters)
            node.make(commands["patroni"], config, user)
        proxied = self.folder / "haproxy.cfg"
        proxied.write_text(haproxy_config(self._proxy_port, [node.ports for node in self.nodes]))
        for name, arguments in (
            ("etcd", etcd_arguments(self.folder / "etcd", *self._etcd_ports)),
            ("haproxy", ["-db", "-f", str(proxied)]),
        ):
            folder = self.folder / name
            folder.mkdir(mode=0o700)
            own(folder, user)
            self._services.append(
                OwnProcess(own_program((commands[name], *arguments), folder, user))
            )

    def start(self, children: Children, poll: Poll) -> None:
        servers = [node.folder / "data" for node in self.nodes]
        children.start(partial(guard_servers, os.getpid(), servers), lambda _: None)
        for service in self._services:
            service.start(children)
        for node in self.nodes:
            node.start(children)
        self.synchronise(poll)

    def synchronise(self, poll: Poll) -> None:
        """Wait until the cluster is whole. Patroni names a synchronous standby in etcd only once
        it has every commit."""
        self._wait(self._is_whole, START_TIMEOUT_S, poll, WHOLE_POLL_S, "does not become whole")

    def fail_over(self, poll: Poll) -> FailoverTimes:
        killed = self.primary()
        failed_at = time.monotonic()
        killed.kill(poll)
        self._killed = killed
        others = [node for node in self.nodes if node is not killed]
        asked_at = failed_at

        def promoted() -> bool:
            nonlocal asked_at
            asked_at = time.monotonic()
            return any(node.is_primary() for node in others)

        self._wait(promoted, FAILOVER_TIMEOUT_S, poll, PRIMARY_POLL_S, "has no new primary")
        return FailoverTimes(failed_at, asked_at)

    def rebuild(self, children: Children, poll: Poll) -> None:
        """Restart the killed node, which Patroni rewinds to the history of the new primary."""
        if self._killed:
            self._killed.start(children)
            self._killed = None
        self.synchronise(poll)

    def end(self, poll: Poll) -> None:
        for service in self._services:
            service.kill()
        for node in self.nodes:
            node.end(poll)
        for service in self._services:
            service.wait_ended(poll)

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def primary(self) -> PatroniNode:
        name = leader_name(self._members())
        for node in self.nodes:
            if node.ports.name == name:
                return node
        raise Unsupported(reason=f"the cluster has no primary: {self._log_text()}")

    def _members(self) -> Sequence[Mapping[str, object]]:
        """The members of the cluster, from the first node that responds."""
        return next((seen for node in self.nodes if (seen := node.members())), ())

    def _is_whole(self) -> bool:
        """Whether the cluster is complete, by Patroni and by the primary itself."""
        members = self._members()
        if not is_whole(members, NODE_NAMES):
            return False
        query = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"
        with suppress(Unsupported):
            return self.primary().query(query) == len(self.nodes) - 1
        return False

    def _wait(
        self, condition: Callable[[], bool], seconds: float, poll: Poll, every: float, problem: str
    ) -> None:
        until = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > until:
                raise Unsupported(reason=f"the Patroni cluster {problem}: {self._log_text()}")
            pause_until = time.monotonic() + every
            while time.monotonic() < pause_until:
                poll()

    def _log_text(self) -> str:
        return "\n".join(f"{node.ports.name}: {node.log_text()}" for node in self.nodes)


def find_commands(find: Callable[[str], str | None]) -> dict[str, str]:
    """The paths of the programs; the error names the packages of those that are missing."""
    if not Path("/proc/self/cwd").exists():
        raise Unsupported(reason="--cluster patroni needs Linux: it finds servers in /proc")
    found = {name: find(name) for name in PACKAGES}
    if missing := [PACKAGES[name] for name, path in found.items() if path is None]:
        raise Unsupported(
            reason="--cluster patroni starts its own cluster, but these packages are missing:"
            f" apt-get install --no-install-recommends {' '.join(missing)}"
        )
    return {name: path for name, path in found.items() if path}


def free_ports(number: int) -> list[int]:
    """Free ports that no outgoing connection takes while their server is down."""
    found: list[int] = []
    while len(found) < number:
        port = random.randrange(*PORT_RANGE)
        with socket.socket() as probe, suppress(OSError):
            probe.bind((HOST, port))
            found += [port] * (port not in found)
    return found
