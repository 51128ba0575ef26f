"""Configuration of a Patroni cluster on loopback, and the check that it is whole: pure functions.

The settings are those of docs/how-to/high-availability.md, except for shorter times: a failover
must not take a minute.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HOST = "127.0.0.1"
SUPERUSER = "postgres"
REPLICATOR = "replicator"
SCOPE = "outlast"

# Patroni requires ttl >= loop_wait + 2 * retry_timeout: a primary that cannot reach etcd demotes
# itself before its key expires.
TTL_S, LOOP_WAIT_S, RETRY_TIMEOUT_S = 5, 1, 2

MAX_LAG_BYTES = 16 * 1024 * 1024  # of a standby that counts as caught up, as Patroni reports it
STANDBY_ROLES = ("sync_standby", "replica")
STANDBY_STATES = ("running", "streaming")  # the second one in newer releases of Patroni

HAPROXY = """\
global
    maxconn 500

defaults
    mode tcp
    retries 2
    timeout connect 2s
    timeout client 30m
    timeout server 30m
    timeout check 1s

listen primary
    bind {host}:{port}
    option httpchk OPTIONS /primary
    http-check expect status 200
    default-server inter 500ms fall 2 rise 1 on-marked-down shutdown-sessions
{servers}
"""


@dataclass(frozen=True, slots=True)
class NodePorts:
    """A node's name, and the ports of its PostgreSQL and of Patroni's REST interface."""

    name: str
    postgres: int
    rest: int


def node_config(
    node: NodePorts, folder: Path, programs: Path, etcd_port: int, parameters: Mapping[str, str]
) -> dict[str, object]:
    """Patroni's configuration of one node; JSON is YAML."""
    trust = [
        f"host all all {HOST}/32 trust",
        f"host replication {REPLICATOR} {HOST}/32 trust",
        f"host replication {SUPERUSER} {HOST}/32 trust",
    ]
    return {
        "scope": SCOPE,
        "name": node.name,
        "restapi": {"listen": f"{HOST}:{node.rest}", "connect_address": f"{HOST}:{node.rest}"},
        "etcd3": {"host": f"{HOST}:{etcd_port}"},
        "bootstrap": {
            "dcs": cluster_config(parameters),
            "initdb": [{"encoding": "UTF8"}, {"auth": "trust"}, "data-checksums"],
        },
        "postgresql": {
            "listen": f"{HOST}:{node.postgres}",
            "connect_address": f"{HOST}:{node.postgres}",
            "data_dir": str(folder / "data"),
            "bin_dir": str(programs),
            "pgpass": str(folder / "pgpass"),
            "authentication": {
                "superuser": {"username": SUPERUSER},
                "replication": {"username": REPLICATOR},
            },
            "parameters": {"unix_socket_directories": ""},
            "pg_hba": trust,
            "remove_data_directory_on_rewind_failure": True,
        },
    }


def cluster_config(parameters: Mapping[str, str]) -> dict[str, object]:
    """The settings that all nodes share, in etcd."""
    return {
        "ttl": TTL_S,
        "loop_wait": LOOP_WAIT_S,
        "retry_timeout": RETRY_TIMEOUT_S,
        "maximum_lag_on_failover": 1024 * 1024,
        "synchronous_mode": True,
        "postgresql": {"use_pg_rewind": True, "use_slots": True, "parameters": dict(parameters)},
    }


def etcd_arguments(folder: Path, client_port: int, peer_port: int) -> list[str]:
    """The arguments of etcd, with one member: the campaign fails PostgreSQL servers, not etcd."""
    clients, peers = f"http://{HOST}:{client_port}", f"http://{HOST}:{peer_port}"
    return [
        "--name=etcd",
        f"--data-dir={folder / 'data'}",
        f"--listen-client-urls={clients}",
        f"--advertise-client-urls={clients}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=etcd={peers}",
    ]


def haproxy_config(port: int, nodes: Sequence[NodePorts]) -> str:
    """HAProxy's configuration: one address, which leads to the primary by Patroni's health
    check."""
    servers = "\n".join(
        f"    server {node.name} {HOST}:{node.postgres} check port {node.rest}" for node in nodes
    )
    return HAPROXY.format(host=HOST, port=port, servers=servers)


def is_whole(members: Sequence[Mapping[str, object]], names: Sequence[str]) -> bool:
    """Whether `GET /cluster` shows one leader, a synchronous standby, and every node caught up on
    the leader's timeline."""
    leaders = [member for member in members if member.get("role") == "leader"]
    standbys = [member for member in members if member.get("role") in STANDBY_ROLES]
    if len(leaders) != 1 or {member.get("name") for member in members} != set(names):
        return False
    if len(standbys) != len(names) - 1 or leaders[0].get("state") != "running":
        return False
    timeline = leaders[0].get("timeline")
    return any(member["role"] == "sync_standby" for member in standbys) and all(
        member.get("state") in STANDBY_STATES
        and member.get("timeline") == timeline
        and isinstance(lag := member.get("lag"), int)
        and lag <= MAX_LAG_BYTES
        for member in standbys
    )


def leader_name(members: Sequence[Mapping[str, Any]]) -> str | None:
    names = [member.get("name") for member in members if member.get("role") == "leader"]
    return names[0] if len(names) == 1 else None
