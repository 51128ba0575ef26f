"""Kafka for the kill tests: topics `orders` (sink) and `mail` (source)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from outlast.bridges import Kafka, Message

# A member that was killed is missed soon. The mock cluster waits 3 s for members of a new group.
SOON = {"session.timeout.ms": 3500, "heartbeat.interval.ms": 200}


def servers() -> str:
    return os.environ["OUTLAST_TEST_KAFKA"]


def sink() -> Kafka:
    return Kafka(servers(), topic="orders")


def source() -> Kafka:
    return Kafka(servers(), topic="mail", group="sync", options=SOON)


def create(*names: str) -> None:
    """Topics. The mock cluster makes those that it is asked for."""
    with closing(reader()) as consumer:
        for name in names:
            partitions_of(consumer, name)


def put(messages: Sequence[Message], topic: str = "mail") -> None:
    producer = Producer({"bootstrap.servers": servers()})
    for one in messages:
        producer.produce(topic, one.raw, key=one.key, headers={"outlast-id": one.id})
    assert producer.flush(20) == 0


def sent(topic: str = "orders") -> list[Message]:
    with closing(reader()) as consumer:
        partitions = partitions_of(consumer, topic)
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        found, open_partitions = [], set(partitions)
        while open_partitions:
            record = consumer.poll(20)
            assert record is not None
            if record.error() is not None:
                assert record.error().code() == KafkaError._PARTITION_EOF, record.error()
                open_partitions.discard(record.partition())
                continue
            headers = {name: value.decode() for name, value in record.headers() or []}
            key = record.key().decode() if record.key() is not None else None
            found.append(Message(headers.pop("outlast-id"), record.value(), key, headers))
        return found


def left(topic: str = "mail") -> int:
    with closing(reader()) as consumer:
        partitions = [TopicPartition(topic, number) for number in partitions_of(consumer, topic)]
        ends = [consumer.get_watermark_offsets(one, timeout=10)[1] for one in partitions]
        committed = consumer.committed(partitions, timeout=10)
        return sum(end - max(0, at.offset) for end, at in zip(ends, committed, strict=True))


def reader() -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": servers(),
            "group.id": "sync",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "allow.auto.create.topics": True,
        }
    )


def partitions_of(consumer: Consumer, topic: str) -> list[int]:
    return list(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
