"""Brokers of this test process, and the program that is killed between one and the database."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pytest

from tests.bridges.killing import Bridged
from tests.bridges.webhook_killing import Hooked, Peer
from tests.support import Database
from tests.support.brokers import KafkaCluster, MotoServer, NatsServer, RabbitServer
from tests.support.ports import free_port
from tests.support.redis import RedisServer
from tests.webhooks.receiver import Receiver, receiving


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    yield from _running(RedisServer())


@pytest.fixture
def redis(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> RedisServer:
    """An empty Redis server."""
    import redis as client

    with client.Redis.from_url(redis_server.url) as connection:
        connection.flushall()
    monkeypatch.setenv("OUTLAST_TEST_REDIS", redis_server.url)
    return redis_server


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    """One that a test may stop."""
    yield from _running(RedisServer())


@pytest.fixture(scope="session")
def nats_server() -> Iterator[NatsServer]:
    yield from _running(NatsServer())


@pytest.fixture
def nats_url(nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """Of a server with the empty streams `orders` and `mail`."""
    monkeypatch.setenv("OUTLAST_TEST_NATS", nats_server.url)
    _broker("nats").create("orders", "mail", max_msg_size=100_000)
    return nats_server.url


@pytest.fixture(scope="session")
def rabbit_server() -> Iterator[RabbitServer]:
    yield from _running(RabbitServer())


@pytest.fixture
def rabbit_url(rabbit_server: RabbitServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """Of a server with the empty queues `orders` and `mail`."""
    monkeypatch.setenv("OUTLAST_TEST_RABBIT", rabbit_server.url)
    _broker("rabbit").create("orders", "mail")
    return rabbit_server.url


@pytest.fixture(scope="session")
def moto_server() -> Iterator[MotoServer]:
    yield from _running(MotoServer())


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "none")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")


@pytest.fixture
def aws(moto_server: MotoServer, credentials: None, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a server with the empty queues `orders`, `orders.fifo` and `mail`."""
    monkeypatch.setenv("OUTLAST_TEST_SQS", moto_server.url)
    _broker("sqs").create("orders", "orders.fifo", "mail")
    return moto_server.url


@pytest.fixture
def topic(aws: str) -> str:
    """A topic of SNS, of which the queue `orders.fifo` gets all messages."""
    return str(_broker("sns").create("orders.fifo"))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[KafkaCluster]:
    """A new one for each test: it starts in a moment."""
    for server in _running(KafkaCluster()):
        monkeypatch.setenv("OUTLAST_TEST_KAFKA", server.servers)
        _broker("kafka").create("orders", "mail")
        yield server


FIXTURES = {
    "redis": "redis",
    "redis_zset": "redis",
    "nats": "nats_url",
    "rabbit": "rabbit_url",
    "sqs": "aws",
    "sns": "topic",
    "kafka": "cluster",
}


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> str:
    """The broker of a kill test, running and empty: its name is the parameter."""
    request.getfixturevalue(FIXTURES[request.param])
    return str(request.param)


@pytest.fixture
def bridged(
    broker: str, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Bridged]:
    monkeypatch.setenv("OUTLAST_URL", database.url)
    monkeypatch.setenv("OUTLAST_SCHEMA", database.schema)
    monkeypatch.setenv("OUTLAST_TEST_BROKER", f"tests.bridges.{broker}_broker")
    app = Bridged(tmp_path)
    app.ol.migrate()
    yield app
    app.ol.close()


@pytest.fixture
def hooked(
    receiver: Receiver, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Hooked]:
    port = free_port()
    monkeypatch.setenv("OUTLAST_URL", database.url)
    monkeypatch.setenv("OUTLAST_SCHEMA", database.schema)
    monkeypatch.setenv("OUTLAST_TEST_RECEIVER", receiver.url())
    monkeypatch.setenv("OUTLAST_TEST_PORT", str(port))
    peer = Peer(receiver, f"http://127.0.0.1:{port}/hooks/mail")
    app = Hooked(tmp_path, peer=peer)
    app.ol.migrate()
    yield app
    peer.end()
    app.ol.close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as open:
        yield open


def _broker(name: str) -> Any:
    """Imported late: each needs the client of its broker."""
    return import_module(f"tests.bridges.{name}_broker")


class _Server(Protocol):
    def start(self) -> None: ...

    def destroy(self) -> None: ...


S = TypeVar("S", bound=_Server)


def _running(server: S) -> Iterator[S]:
    """A server, started, for the time of a fixture."""
    try:
        server.start()
        yield server
    finally:
        server.destroy()
