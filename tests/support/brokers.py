"""Brokers on ports of their own: NATS, RabbitMQ, moto's SQS and SNS, librdkafka's mock cluster."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

from tests.support.janitor import janitor
from tests.support.ports import free_port
from tests.support.requirements import require_program, skip_or_fail

START_S = 60.0


class BrokerServer:
    """A server process and its folder. `command` is called with the port that was chosen."""

    host = "127.0.0.1"
    name = ""

    def __init__(self) -> None:
        self.require()
        self.folder = Path(tempfile.mkdtemp(prefix=f"outlast-{self.name}-"))
        janitor.watch_folder(self.folder)
        self.log = self.folder / "server.log"
        self.port = 0
        self._processes: list[subprocess.Popen[bytes]] = []

    def require(self) -> None:
        """Skip the test, or fail it, where the server is not installed."""

    def launch(self) -> None:
        raise NotImplementedError

    def answers(self) -> bool:
        try:
            with socket.create_connection((self.host, self.port), 1.0):
                return True
        except OSError:
            return False

    def start(self) -> None:
        for _ in range(5):  # somebody may take the port between the choice and the start
            self.port = self.port or free_port()
            self.launch()
            if self._is_up():
                return
            self.kill()
            self.port = 0
        raise AssertionError(f"{self.name} does not start\n{self.log.read_text()}")

    def _is_up(self) -> bool:
        deadline = time.monotonic() + START_S
        while self._processes[-1].poll() is None and time.monotonic() < deadline:
            if self.answers():
                return True
            time.sleep(0.02)
        return False

    def run(self, *command: str, **env: str) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, **env},
            )
        janitor.watch_group(process.pid)
        self._processes.append(process)
        return process

    def signal(self, number: int) -> None:
        """To the server and its helpers."""
        for process in self._processes:
            os.killpg(process.pid, number)

    def pause(self) -> None:
        """It is there, and says nothing."""
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        while self._processes:
            process = self._processes.pop()
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(10)
            janitor.forget_group(process.pid)

    def destroy(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
        janitor.forget_folder(self.folder)


class NatsServer(BrokerServer):
    name = "nats"

    def require(self) -> None:
        self.program = require_program("nats-server")

    @property
    def url(self) -> str:
        return f"nats://{self.host}:{self.port}"

    def launch(self) -> None:
        where = ("-a", self.host, "-p", str(self.port))
        self.run(self.program, *where, "--jetstream", "--store_dir", str(self.folder / "data"))


class RabbitServer(BrokerServer):
    """A node of its own, with a port mapper of its own, so that no daemon is left behind."""

    name = "rabbitmq"

    def require(self) -> None:
        require_program("rabbitmq-server")
        self._epmd = require_program("epmd")
        # Not the wrapper that Debian puts before it, which changes the user.
        self.program = "/usr/lib/rabbitmq/bin/rabbitmq-server"
        if not Path(self.program).exists():
            skip_or_fail(f"{self.program} does not exist")

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@{self.host}:{self.port}/"

    def launch(self) -> None:
        mapper = str(free_port())
        self.run(self._epmd, "-port", mapper, "-address", self.host)
        plugins = self.folder / "plugins"
        plugins.write_text("[].")
        self.run(
            self.program,
            HOME=str(self.folder),
            ERL_EPMD_PORT=mapper,
            RABBITMQ_NODENAME=f"outlast{self.port}@localhost",
            RABBITMQ_NODE_IP_ADDRESS=self.host,
            RABBITMQ_NODE_PORT=str(self.port),
            RABBITMQ_DIST_PORT=str(free_port()),
            RABBITMQ_MNESIA_BASE=str(self.folder / "data"),
            RABBITMQ_LOG_BASE=str(self.folder / "log"),
            RABBITMQ_ENABLED_PLUGINS_FILE=str(plugins),
            RABBITMQ_CONFIG_FILE=str(self.folder / "none"),
            RABBITMQ_ADVANCED_CONFIG_FILE=str(self.folder / "none"),
            RABBITMQ_CONF_ENV_FILE=os.devnull,
            RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="+S 1:1 +sbwt none",
        )


class MotoServer(BrokerServer):
    """SQS and SNS."""

    name = "moto"

    def require(self) -> None:
        if find_spec("moto") is None:
            skip_or_fail("moto is not installed")

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def launch(self) -> None:
        self.run(sys.executable, "-m", "moto.server", "-H", self.host, "-p", str(self.port))


class KafkaCluster(BrokerServer):
    """One broker of librdkafka's mock cluster, in a process of its own."""

    name = "kafka"
    CODE = """
import sys, time
from confluent_kafka import Producer
cluster = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "", "log_level": 0})
(broker,) = cluster.list_topics(timeout=10).brokers.values()
print("port", broker.port, flush=True)
while True:
    time.sleep(3600)
"""

    def require(self) -> None:
        if find_spec("confluent_kafka") is None:
            skip_or_fail("confluent_kafka is not installed")

    @property
    def servers(self) -> str:
        return f"{self.host}:{self.port}"

    def launch(self) -> None:
        self.run(sys.executable, "-c", self.CODE)

    def answers(self) -> bool:
        """It chooses its port itself."""
        for line in self.log.read_text().splitlines():
            if line.startswith("port "):
                self.port = int(line.split()[1])
                return super().answers()
        return False
