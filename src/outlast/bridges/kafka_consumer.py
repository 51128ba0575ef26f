"""A Kafka consumer as a member of its group: polls, commits and seeks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .offsets import Offsets
from .protocols import Message, SinkDown
from .wire_headers import ID, from_wire

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError
    from confluent_kafka import Message as Record

METADATA_TIMEOUT_S = 5.0
MAX_LAG_PARTITIONS = 100

Place = tuple[str, int, int]  # topic, partition, offset


class GroupMember:
    """A member of the group and its received records. Used by one thread, except for `lag`."""

    def __init__(self, options: dict[str, object], topic: str) -> None:
        from confluent_kafka import Consumer

        self.client: Consumer = Consumer(options)
        self._topic = topic
        self._offsets = Offsets()

    def start(self) -> None:
        self.client.subscribe([self._topic], on_revoke=self._lost, on_lost=self._lost)

    def _lost(self, client: Consumer, partitions: Sequence[Any]) -> None:
        self._offsets.lost((one.topic, one.partition) for one in partitions)

    def poll(self, limit: int, wait: float) -> list[Record]:
        """The first record that arrives, and the records fetched by then."""
        first = self.client.poll(wait)
        if first is None:
            return []
        # At once: a later call may report that its partition was reassigned.
        found = self._good([first])
        if limit > 1:
            found += self._good(self.client.consume(limit - 1, 0.0))
        return found

    def _good(self, records: Sequence[Record]) -> list[Record]:
        """The records without the client's own events, noted as received."""
        found: list[Record] = []
        problem: KafkaError | None = None
        for record in records:
            if (error := record.error()) is None:
                topic, partition, offset = _place(record)
                self._offsets.received((topic, partition), offset)
                found.append(record)
            elif not _passes(error):
                problem = error
        if problem is not None and not found:  # otherwise the client reports it again
            raise SinkDown(f"{problem.name()}: {problem.str()}")
        return found

    def stored(self, places: Sequence[Place]) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        for topic, partition, offset in places:
            self._offsets.stored((topic, partition), offset)
        positions = self._offsets.to_commit()
        if not positions:
            return
        given = [TopicPartition(*partition, offset) for partition, offset in positions.items()]
        try:
            self.client.commit(offsets=given, asynchronous=False)
        except KafkaException as error:
            if not _rebalanced(error.args[0]):
                raise
            return  # they are delivered to the next owner, which finds their jobs
        self._offsets.committed(positions)

    def go_back(self, places: Sequence[Place]) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        first: dict[tuple[str, int], int] = {}
        for topic, partition, offset in places:
            first[topic, partition] = min(offset, first.get((topic, partition), offset))
        for where, offset in first.items():
            with suppress(KafkaException):  # reassigned: its next owner receives them
                self.client.seek(TopicPartition(*where, offset))

    def lag(self) -> int | None:
        from confluent_kafka import TopicPartition

        found = self.client.list_topics(self._topic, timeout=METADATA_TIMEOUT_S)
        numbers = list(found.topics[self._topic].partitions)
        if len(numbers) > MAX_LAG_PARTITIONS:
            return None
        partitions = [TopicPartition(self._topic, number) for number in numbers]
        lag = 0
        for one in self.client.committed(partitions, timeout=METADATA_TIMEOUT_S):
            low, high = self.client.get_watermark_offsets(one, timeout=METADATA_TIMEOUT_S)
            lag += high - max(low, one.offset)
        return lag


async def returned(polling: asyncio.Future[list[Record]], consumer: GroupMember) -> None:
    """Return the records of a poll whose caller was cancelled, so that they are received again."""
    with suppress(Exception):
        records = await polling
        consumer.go_back([_place(record) for record in records])


def read_record(record: Record) -> Message:
    """The message of a record. Its id is `outlast-id`, else topic, partition, offset and time: the
    offsets of a topic that was deleted and created again start at 0."""
    topic, partition, offset = _place(record)
    given = record.headers() or []
    headers = {
        name: _text(value) for name, value in (given.items() if isinstance(given, dict) else given)
    }
    id = headers.get(ID) or f"{topic}-{partition}-{offset}-{record.timestamp()[1]}"
    key, headers = from_wire(headers)
    if (own := record.key()) is not None:
        key = _text(own)
    return Message(id, record.value() or b"", key, headers, receipt=(topic, partition, offset))


def _place(record: Record) -> Place:
    topic, partition, offset = record.topic(), record.partition(), record.offset()
    assert topic is not None and partition is not None and offset is not None
    return topic, partition, offset


def _text(value: object) -> str:
    if value is None:
        return ""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def _passes(error: KafkaError) -> bool:
    """Whether a consumer recovers from an event by itself."""
    from confluent_kafka import KafkaError as Errors

    known = {Errors._PARTITION_EOF, Errors._MAX_POLL_EXCEEDED, Errors.REBALANCE_IN_PROGRESS}
    return error.code() in known


def _rebalanced(error: KafkaError) -> bool:
    from confluent_kafka import KafkaError as Errors

    return error.code() in {
        Errors.REBALANCE_IN_PROGRESS, Errors.ILLEGAL_GENERATION, Errors.UNKNOWN_MEMBER_ID,
        Errors.FENCED_INSTANCE_ID, Errors._NO_OFFSET, Errors._ASSIGNMENT_LOST,
    }  # fmt: skip
