"""The Patroni cluster of `outlast verify failover`: its files, its decisions, and the whole."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from outlast.model.errors import Unsupported
from outlast.verify.campaigns.resumption import Resumption
from outlast.verify.faults.own_program import find_program
from outlast.verify.faults.patroni import (
    NODE_NAMES,
    PORT_RANGE,
    PatroniCluster,
    find_commands,
    free_ports,
)
from outlast.verify.faults.patroni_config import (
    NodePorts,
    etcd_arguments,
    haproxy_config,
    is_whole,
    leader_name,
    node_config,
)
from outlast.verify.faults.server_process import child_pids, server_pid
from outlast.verify.ledger import LedgerEntry
from tests.docs.pages import ROOT
from tests.support import Processes, eventually
from tests.support.requirements import require_program
from tests.verify.running import figures

NODES = [NodePorts("n1", 11_001, 12_001), NodePorts("n2", 11_002, 12_002)]
PAGE = ROOT / "docs/how-to/high-availability.md"


# Files


def test_a_node_is_on_loopback_keeps_a_synchronous_standby_and_can_be_rewound() -> None:
    config = node_config(NODES[0], Path("/x/n1"), Path("/pg/bin"), 13_001, {"timezone": "UTC"})
    shared = config["bootstrap"]["dcs"]
    assert shared["synchronous_mode"] is True and shared["postgresql"]["use_pg_rewind"] is True
    assert shared["ttl"] >= shared["loop_wait"] + 2 * shared["retry_timeout"], "Patroni asks for it"
    assert shared["postgresql"]["parameters"] == {"timezone": "UTC"}
    listening = [config["restapi"]["listen"], config["postgresql"]["listen"]]
    assert listening == ["127.0.0.1:12001", "127.0.0.1:11001"]
    assert config["etcd3"] == {"host": "127.0.0.1:13001"}
    assert config["postgresql"]["data_dir"] == "/x/n1/data"
    assert all(line.split()[3].startswith("127.0.0.1/") for line in config["postgresql"]["pg_hba"])
    json.dumps(config)  # as it is written


def test_etcd_listens_on_loopback_ports_of_its_own() -> None:
    urls = [word for word in etcd_arguments(Path("/x"), 13_001, 13_002) if "http" in word]
    assert urls and all("//127.0.0.1:1300" in word for word in urls)


def test_the_proxy_asks_patroni_and_cuts_the_sessions_of_a_lost_primary() -> None:
    config = haproxy_config(14_001, NODES)
    assert config.count("bind ") == 1 and "bind 127.0.0.1:14001" in config
    assert "server n1 127.0.0.1:11001 check port 12001" in config
    assert "server n2 127.0.0.1:11002 check port 12002" in config
    assert "OPTIONS /primary" in config and "on-marked-down shutdown-sessions" in config


def test_the_page_shows_the_proxy_that_the_campaign_runs() -> None:
    """Its checks, word for word; hosts and ports are the user's own."""
    page = PAGE.read_text()
    config = haproxy_config(14_001, NODES)
    listen = config[config.index("    option httpchk") : config.index("    server n1")]
    assert listen in page
    assert re.search(r"server \w+ \S+:5432 check port 8008", page)


def test_ports_are_distinct_and_not_those_of_outgoing_connections() -> None:
    ports = free_ports(9)
    assert len(set(ports)) == 9
    assert all(PORT_RANGE[0] <= port < PORT_RANGE[1] for port in ports)


def test_clients_find_the_primary_by_all_hosts_or_by_the_proxy() -> None:
    routes = PatroniCluster().routes
    hosts = routes["hosts"].partition("@")[2].partition("/")[0]
    assert len(hosts.split(",")) == len(NODE_NAMES)
    assert routes["hosts"].endswith("?target_session_attrs=read-write")
    assert "," not in routes["proxy"]


# Decisions


def member(name: str, role: str, **said: Any) -> dict[str, Any]:
    state = "running" if role == "leader" else "streaming"
    lag = {} if role == "leader" else {"lag": 0}
    return {"name": name, "role": role, "state": state, "timeline": 3, **lag, **said}


WHOLE = [member("n1", "leader"), member("n2", "sync_standby"), member("n3", "replica")]


def test_a_cluster_is_whole_when_every_standby_has_what_the_leader_has() -> None:
    assert is_whole(WHOLE, NODE_NAMES)
    older = [WHOLE[0], WHOLE[1], member("n3", "replica", state="running")]  # as Patroni 3.0 says
    assert is_whole(older, NODE_NAMES)
    assert leader_name(WHOLE) == "n1"


@pytest.mark.parametrize(
    "members",
    [
        [],
        WHOLE[:2],
        [*WHOLE[:2], member("n2", "replica")],
        [member("n1", "replica"), *WHOLE[1:]],
        [member("n1", "leader", state="starting"), *WHOLE[1:]],
        [*WHOLE[:2], member("n3", "leader")],
        [WHOLE[0], member("n2", "replica"), WHOLE[2]],
        [*WHOLE[:2], member("n3", "replica", state="crashed")],
        [*WHOLE[:2], member("n3", "replica", timeline=2)],
        [*WHOLE[:2], member("n3", "replica", lag="unknown")],
        [*WHOLE[:2], member("n3", "replica", lag=2**30)],
        [{}, {}, {}],
    ],
)
def test_a_cluster_without_a_leader_or_with_a_standby_behind_is_not(
    members: list[Mapping[str, Any]],
) -> None:
    assert not is_whole(members, NODE_NAMES)


def test_a_process_that_runs_elsewhere_is_no_server(tmp_path: Path) -> None:
    """A killed server leaves its file behind, and ids of processes come again."""
    assert server_pid(tmp_path) == 0
    (tmp_path / "postmaster.pid").write_text(f"{os.getpid()}\n{tmp_path}\n")
    assert server_pid(tmp_path) == 0
    with subprocess.Popen([sys.executable, "-c", "input()"], cwd=tmp_path, stdin=-1) as here:
        (tmp_path / "postmaster.pid").write_text(f"{here.pid}\n{tmp_path}\n")
        assert server_pid(tmp_path) == here.pid
        here.kill()


GUARDED = """
import os, sys, time
from functools import partial
from pathlib import Path
from outlast.verify.children import Children
from outlast.verify.faults.server_process import guard_servers
folder = Path(sys.argv[1])
guard = partial(guard_servers, os.getpid(), [folder])
Children(folder / "noise").start(guard, print)
time.sleep(600)
"""


def test_servers_end_with_a_campaign_that_is_killed(processes: Processes, tmp_path: Path) -> None:
    """They are no children of it."""
    with subprocess.Popen([sys.executable, "-c", "input()"], cwd=tmp_path, stdin=-1) as server:
        (tmp_path / "postmaster.pid").write_text(f"{server.pid}\n{tmp_path}\n")
        campaign = processes.python(GUARDED, tmp_path)
        guards = partial(child_pids, campaign.pid)
        eventually(lambda: [pid for pid in guards() if os.getsid(pid) == pid], 30)
        assert server.poll() is None
        campaign.kill()
        assert server.wait(30) == -signal.SIGQUIT


def test_work_has_resumed_when_it_was_seen_by_each_route() -> None:
    resumption = Resumption(10.0, {1: "hosts", 2: "proxy", 3: "hosts"}, ["hosts", "proxy"])

    def seen(kind: str, pid: int, at: float) -> bool:
        return resumption.record([LedgerEntry(kind, "j", pid=pid, at=at)])

    assert not seen("accepted", 1, 9.5), "of the old primary"
    assert len(resumption.missing) == 5
    assert not seen("began", 2, 10.25) and not seen("accepted", 1, 10.5)
    assert not seen("accepted", 1, 11.0), "the first one counts"
    assert not seen("promised", 3, 10.5) and not seen("promised", 2, 12.0)
    assert resumption.missing == ["first_finish_by_proxy"]
    assert seen("accepted", 2, 13.0)
    assert resumption.seconds == {
        "first_claim": 0.25,
        "first_finish_by_hosts": 0.5,
        "first_enqueue_by_hosts": 0.5,
        "first_enqueue_by_proxy": 2.0,
        "first_finish_by_proxy": 3.0,
    }


# The command


def test_packages_that_are_missing_are_named() -> None:
    for installed, missing in (((), "patroni etcd-server haproxy"), (("etcd",), "patroni haproxy")):
        with pytest.raises(Unsupported, match=f"install --no-install-recommends {missing}[.]$"):
            find_commands({name: f"/bin/{name}" for name in installed}.get)


def test_without_its_programs_the_command_names_them(processes: Processes, folder: Path) -> None:
    words = ("outlast", "verify", "failover", "--cluster", "patroni")
    refused = processes.python(*words, env={"TMPDIR": str(folder), "PATH": str(folder)})
    assert refused.wait(30.0) == 1
    assert "apt-get install --no-install-recommends patroni etcd-server" in refused.output()
    assert "Traceback" not in refused.output()
    assert list(folder.iterdir()) == []


def test_patroni_keeps_no_asynchronous_standby(processes: Processes) -> None:
    words = ("outlast", "verify", "failover", "--cluster", "patroni", "--async")
    refused = processes.python(*words)
    assert refused.wait(30.0) == 2
    assert "--async needs --cluster pair" in refused.output()


# The whole


@pytest.mark.campaign
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("times", [2, 50])
def test_killed_primaries_of_a_patroni_cluster_lose_nothing(
    processes: Processes, folder: Path, times: int
) -> None:
    """R250: SIGKILL of the primary and its Patroni, under load: nothing that was acknowledged is
    lost or accepted twice, and by both routes work resumes within two seconds of the new primary.
    No process and no folder is left."""
    for program in ("patroni", "etcd", "haproxy"):
        require_program(program)
    words = ("--cluster", "patroni", "--times", times, "--seed", 1, "--json")
    running = processes.python("outlast", "verify", "failover", *words, env={"TMPDIR": str(folder)})
    said = figures(running.succeed(2300.0))
    assert said["violations"] == 0, said["wrong"]
    assert (said["failovers"], said["lost"], said["accepted_twice"]) == (times, 0, 0)
    assert said["jobs"] >= said["enqueued"] > 0
    for name, spread in said.items():
        if name.startswith("first_"):
            assert spread["n"] == times and spread["max"] <= 2.0, (name, spread)
    assert list(folder.iterdir()) == []
    assert processes_in(folder) == []


def processes_in(folder: Path) -> list[str]:
    commands = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            commands.append(process.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return [command for command in commands if str(folder) in command]


@pytest.mark.campaign
def test_the_page_s_proxy_is_valid(tmp_path: Path) -> None:
    """By HAProxy itself."""
    require_program("haproxy")
    config = re.search(r"```haproxy\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert config is not None
    file = tmp_path / "haproxy.cfg"
    file.write_text(re.sub(r"10\.0\.0\.\d+:5432 check", "127.0.0.1:5432 check", config[1]))
    haproxy = find_program("haproxy")
    assert haproxy is not None
    checked = subprocess.run([haproxy, "-c", "-f", file], capture_output=True, check=False)
    assert checked.returncode == 0, checked.stderr
