"""Rates of outboxes and sources: `python -m benchmarks.bridges`.

For each broker, interleaved: its sink and its source in a tight loop, which is the client of the
broker in batches; then the relay of an outbox, and a source, on SQLite and on PostgreSQL. Servers
are started for the run; SQS is moto's server, Kafka the mock cluster of its client.

A relay is timed from its first send to the end of its last one, a source from its first message to
its last acknowledgement: starts of workers and connections are no part of it.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from benchmarks.services import postgres
from outlast import Outlast, StoreSettings
from outlast.bridges import Message
from outlast.bridges.source_loop import SourceLoop
from tests.support.brokers import KafkaCluster, MotoServer, NatsServer, RabbitServer
from tests.support.redis import RedisServer

BATCH = 500
WAIT_S = 300.0
SERVERS: dict[str, tuple[Callable[[], Any], str]] = {
    "redis": (RedisServer, "OUTLAST_TEST_REDIS"),
    "nats": (NatsServer, "OUTLAST_TEST_NATS"),
    "rabbit": (RabbitServer, "OUTLAST_TEST_RABBIT"),
    "kafka": (KafkaCluster, "OUTLAST_TEST_KAFKA"),
    "sqs": (MotoServer, "OUTLAST_TEST_SQS"),
}


class Timed:
    """Around a bridge: when its first message moved, and when the last one was done."""

    def __init__(self, bridge: Any, total: int) -> None:
        self._bridge, self._left = bridge, total
        self._began = 0.0
        self.seconds = 0.0
        self.done = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bridge, name)

    async def send(self, messages: Sequence[Message]) -> Any:
        self._began = self._began or time.monotonic()
        outcomes = await self._bridge.send(messages)
        assert not any(outcomes), outcomes
        self._count(len(messages))
        return outcomes

    async def receive(self, limit: int, wait: float) -> Any:
        messages = await self._bridge.receive(limit, wait)
        if messages:
            self._began = self._began or time.monotonic()
        return messages

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        await self._bridge.acknowledge(messages)
        self._count(len(messages))

    def _count(self, number: int) -> None:
        self._left -= number
        if self._left <= 0 and not self.done.is_set():
            self.seconds = time.monotonic() - self._began
            self.done.set()


async def send_alone(broker: Any, total: int) -> float:
    """The sink in a tight loop."""
    sink = Timed(broker.sink(), total)
    await sink.open()
    most = min(BATCH, sink.limits.items * sink.limits.parallel)
    for first in range(0, total, most):
        some = [
            Message(f"{os.urandom(8).hex()}", b'{"n":1}') for _ in range(min(most, total - first))
        ]
        size = sink.limits.items
        await asyncio.gather(*(sink.send(some[n : n + size]) for n in range(0, len(some), size)))
    await sink.close()
    return sink.seconds


async def receive_alone(broker: Any, total: int) -> float:
    """The source in a tight loop."""
    await asyncio.to_thread(broker.put, _messages(total))
    source = Timed(broker.source(), total)
    await source.open()
    while not source.done.is_set():
        await source.acknowledge(await source.receive(BATCH, 1.0))
    await source.close()
    return source.seconds


async def relay(broker: Any, ol: Outlast, total: int) -> float:
    """An outbox of messages without keys."""
    sink = Timed(broker.sink(), total)
    orders = ol.outbox("orders", sink, batch=BATCH)
    for _ in range(0, total, BATCH):
        await ol.aenqueue(*(orders.message({"n": 1}) for _ in range(BATCH)))
    async with ol.worker(queues=["orders"], sources=False), asyncio.timeout(WAIT_S):
        await sink.done.wait()
    return sink.seconds


async def receive(broker: Any, ol: Outlast, total: int) -> float:
    """A source that stores jobs."""

    @ol.task
    async def sync(body: dict[str, int]) -> None: ...

    await asyncio.to_thread(broker.put, _messages(total))
    source = Timed(broker.source(), total)
    loop = SourceLoop(ol.source("mail", source, task=sync, batch=BATCH, wait=1), ol._areceive_jobs)
    await loop.start()
    try:
        async with asyncio.timeout(WAIT_S):
            await source.done.wait()
    finally:
        await loop.stop()
        await loop.aclose()
    return source.seconds


def _messages(total: int) -> list[Message]:
    return [Message(f"m{n}-{os.urandom(4).hex()}", b'{"n":1}') for n in range(total)]


@contextmanager
def fresh(name: str) -> Iterator[Any]:
    """A broker of this name, running and empty."""
    kind, variable = SERVERS[name]
    server = kind()
    try:
        server.start()
        os.environ[variable] = getattr(server, "servers", None) or server.url
        broker = import_module(f"tests.bridges.{name}_broker")
        names = ["orders", "mail", *(["orders.fifo"] if name == "sqs" else [])]
        if name != "redis":
            broker.create(*names)
        yield broker
    finally:
        server.destroy()


def measure(name: str, server: str, total: int) -> dict[str, float]:
    """Messages a second of one broker, each way once."""
    found: dict[str, float] = {}
    with fresh(name) as broker:
        found["send alone"] = total / asyncio.run(send_alone(broker, total))
        found["receive alone"] = total / asyncio.run(receive_alone(broker, total))
    for way in (relay, receive):
        for store in ("sqlite", "postgres"):
            with fresh(name) as broker, tempfile.TemporaryDirectory() as folder:
                url = server if store == "postgres" else f"sqlite:///{Path(folder) / 'bench.db'}"
                schema = f"bench_{os.urandom(4).hex()}"

                async def run(way: Any = way, url: str = url, schema: str = schema) -> float:
                    ol = Outlast(url, schema=schema, settings=StoreSettings.of())
                    try:
                        await ol.amigrate()
                        return float(await way(broker, ol, total))
                    finally:
                        await ol.aclose()

                found[f"{way.__name__} {store}"] = total / asyncio.run(run())
    return found


@click.command()
@click.option("--messages", default=5000, help="Messages of one measurement; a multiple of 500.")
@click.option("--rounds", default=3)
@click.option("--broker", "names", multiple=True, default=list(SERVERS))
def main(messages: int, rounds: int, names: Sequence[str]) -> None:
    """Print the medians of all rounds."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        os.environ.setdefault(name, "none")
    os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    with ExitStack() as stack:
        server = stack.enter_context(postgres())
        for _ in range(rounds):
            for name in names:
                total = messages if name != "sqs" else max(BATCH, messages // 10 // BATCH * BATCH)
                found[name].append(measure(name, server, total))
    for name, rates in found.items():
        medians = {way: statistics.median(one[way] for one in rates) for way in rates[0]}
        print(name, ", ".join(f"{way} {rate:,.0f}/s" for way, rate in medians.items()))


if __name__ == "__main__":
    main()
