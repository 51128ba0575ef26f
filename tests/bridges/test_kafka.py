"""Kafka as a sink and a source, on the mock cluster of its client library."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from outlast import InvalidOption, Outlast
from outlast.bridges import Bad, Kafka, Message
from outlast.bridges.offsets import Offsets
from tests.bridges import kafka_broker
from tests.bridges.kill_checks import (
    check_away,
    check_cancelled_receive,
    check_round_trip,
)
from tests.support import aeventually
from tests.support.brokers import KafkaCluster
from tests.worker.working import work


def test_what_is_received_is_what_was_sent(cluster: KafkaCluster) -> None:
    """R123: body, key, headers and id, whatever is in them."""
    sink = Kafka(cluster.servers, topic="mail")
    asyncio.run(check_round_trip(sink, kafka_broker.source()))


def test_a_cancelled_receive_loses_nothing(cluster: KafkaCluster) -> None:
    """R182."""
    asyncio.run(check_cancelled_receive(kafka_broker.source(), kafka_broker.put))


async def test_one_message_that_is_too_large_is_dead(ol: Outlast, cluster: KafkaCluster) -> None:
    """R055, R124: 49 are delivered, with their keys; one is dead with the error."""
    sink = Kafka(cluster.servers, topic="orders", options={"message.max.bytes": 10_000})
    orders = ol.outbox("orders", sink)
    jobs = ol.enqueue(*(orders.message("x" * 20_000 if n == 7 else n) for n in range(50)))
    async with work(ol):
        await aeventually(lambda: ol.counts()["succeeded"] == 49 and ol.counts()["dead"] == 1)
    assert "MSG_SIZE_TOO_LARGE" in (ol.job(jobs[7].id).error or {})["message"]
    assert {one.id for one in kafka_broker.sent()} == {job.id for job in jobs} - {jobs[7].id}


def test_outcomes_are_told_by_position(cluster: KafkaCluster) -> None:
    async def main() -> list[Any]:
        sink = Kafka(cluster.servers, topic="orders", options={"message.max.bytes": 10_000})
        await sink.open()
        bodies = (b"1", b"x" * 20_000, b"3")
        outcomes = list(await sink.send([Message(str(n), b, "k") for n, b in enumerate(bodies)]))
        await sink.close()
        return outcomes

    outcomes = asyncio.run(main())
    assert [type(one) for one in outcomes] == [type(None), Bad, type(None)]
    assert [(one.id, one.key) for one in kafka_broker.sent()] == [("0", "k"), ("2", "k")]


@pytest.mark.kinds("sqlite")
async def test_records_of_others_become_jobs(ol: Outlast, cluster: KafkaCluster) -> None:
    """R123, R130: topic, partition, offset and time are their id; offsets are committed after the
    jobs."""
    from confluent_kafka import Producer

    seen = []

    @ol.task
    async def sync(body: int) -> None:
        seen.append(body)

    producer = Producer({"bootstrap.servers": cluster.servers})
    for n in range(30):
        producer.produce("mail", str(n), key=str(n % 5))
    producer.flush()
    ol.source("mail", kafka_broker.source(), task=sync, wait=1)
    async with work(ol):
        await aeventually(lambda: len(seen) == 30, timeout=30)
        await aeventually(lambda: kafka_broker.left() == 0)
    keys = [str(job.key) for job in ol.jobs(limit=50)]
    assert len(set(keys)) == 30 and all(key.startswith("in:mail:mail-") for key in keys)


def test_a_partition_that_moves_is_received_by_its_next_owner(cluster: KafkaCluster) -> None:
    """R027, R130: what the first member had not acknowledged comes to the second; what it
    acknowledges too late changes nothing."""

    async def main() -> tuple[set[str], set[str]]:
        one, two = kafka_broker.source(), kafka_broker.source()
        messages = [Message(f"m{n}", b"1", f"k{n}") for n in range(40)]
        await asyncio.to_thread(kafka_broker.put, messages)
        await one.open()
        held: dict[str, Message] = {}
        while len(held) < 40:
            held |= {m.id: m for m in await one.receive(100, 5.0)}
        await one.acknowledge(list(held.values())[:10])
        await two.open()
        moved: dict[str, Message] = {}

        async def some_moved() -> bool:
            await one.receive(100, 0.1)  # it takes part in the rebalance
            moved.update({m.id: m for m in await two.receive(100, 0.1)})
            return bool(moved)

        await aeventually(some_moved, 30)
        await one.acknowledge(list(held.values()))
        await one.close()

        async def all_are_acknowledged() -> bool:
            moved.update({m.id: m for m in await two.receive(100, 1.0)})
            await two.acknowledge(list(moved.values()))
            return await two.lag() == 0

        await aeventually(all_are_acknowledged, 30)
        await two.close()
        return set(held), set(moved)

    held, moved = asyncio.run(main())
    assert moved and moved <= held


def test_a_gap_is_not_committed() -> None:
    """R130: an offset is committed when everything before it is stored."""
    offsets, partition = Offsets(), ("mail", 0)
    for offset in (5, 6, 7, 9):
        offsets.received(partition, offset)
    assert offsets.to_commit() == {}
    offsets.stored(partition, 6)
    offsets.stored(partition, 9)
    assert offsets.to_commit() == {}, "5 is not stored"
    offsets.stored(partition, 5)
    assert offsets.to_commit() == {partition: 7}
    offsets.committed({partition: 7})
    assert offsets.to_commit() == {}
    offsets.stored(partition, 7)
    assert offsets.to_commit() == {partition: 10}
    offsets.lost([partition])
    offsets.stored(partition, 9)
    offsets.committed({partition: 10})
    assert offsets.to_commit() == {}
    offsets.received(partition, 3)
    offsets.stored(partition, 3)
    assert offsets.to_commit() == {partition: 4}, "it was given to us again"


@pytest.mark.kinds("sqlite")
def test_a_cluster_that_is_away_costs_nothing(
    ol: Outlast, cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R054, R223: no attempt, no dead message, order per key."""
    monkeypatch.setattr("outlast.bridges.kafka.METADATA_TIMEOUT_S", 1.0)
    sink = Kafka(cluster.servers, topic="orders")
    check_away(ol, sink, cluster.pause, cluster.resume, kafka_broker.sent)


def test_bad_options_are_refused() -> None:
    for wrong in (
        lambda: Kafka("", topic="t"),
        lambda: Kafka("kafka://host:9092", topic="t"),
        lambda: Kafka("host:9092", topic=""),
        lambda: Kafka("host:9092", topic=lambda m: "t", group="g"),
        lambda: Kafka("host:9092", topic="t", options={"enable.auto.commit": True}),
    ):
        with pytest.raises(InvalidOption):
            wrong()


def test_no_option_is_shown() -> None:
    sink = Kafka("host:9092", topic="t", group="g", options={"sasl.password": "hunter2"})
    assert repr(sink) == "Kafka host:9092, topic t, group g"
