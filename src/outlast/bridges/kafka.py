"""Kafka: a topic as a sink, a topic with a consumer group as a source.

A record has the message's body as its value and the message's key as its key, so that messages of
a key are in one partition, in order; `outlast-id` and the message's headers are its headers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from ..model.errors import InvalidOption
from ..model.options import seconds
from .client_library import require_client
from .kafka_consumer import METADATA_TIMEOUT_S, GroupMember, read_record, returned
from .protocols import DEFAULT_REDELIVERY_S, Bad, Limits, Message, Retry, SendOutcome, SinkDown
from .targets import Target, check_target, name_of, shown
from .wire_headers import ID, KEY, to_wire

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Producer
    from confluent_kafka import Message as Record

T = TypeVar("T")

DELIVERY_TIMEOUT_S = 15.0  # below the timeout of an outbox, so that the client reports the reason
POLL_SLICE_S = 0.5  # maximum delay of a stop; a poll is local, without a request to the broker
DEFAULT_LIMITS = Limits(items=1000, bytes=16_000_000)
OURS = (
    "bootstrap.servers", "group.id", "enable.idempotence", "acks", "enable.auto.commit",
    "enable.auto.offset.store", "message.timeout.ms", "delivery.timeout.ms",
)  # fmt: skip
SOURCE_ONLY = (
    "auto.offset.reset", "session.timeout.ms", "heartbeat.interval.ms", "group.instance.id",
    "max.poll.interval.ms", "partition.assignment.strategy", "isolation.level",
)  # fmt: skip


class Kafka:
    """`Kafka("host:9092", topic="orders")` for an outbox: the topic, or a function of the message.
    `Kafka("host:9092", topic="mail", group="sync")` for a source. `options` are settings of
    librdkafka, such as security.protocol and sasl.password."""

    def __init__(
        self,
        servers: str,
        *,
        topic: Target,
        group: str | None = None,
        options: Mapping[str, object] | None = None,
        redelivery: float = DEFAULT_REDELIVERY_S,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        require_client("confluent_kafka", "kafka", "Kafka")
        if not isinstance(servers, str) or not servers or "://" in servers:
            raise InvalidOption(option="servers", reason="must be like host:9092,host:9092")
        check_target("topic", topic)
        if group is not None and not (isinstance(topic, str) and isinstance(group, str) and group):
            raise InvalidOption(option="group", reason="must be a name, for one topic")
        self._servers, self._topic, self._group = servers, topic, group
        self._options = _checked_options(options or {})
        self.redelivery = seconds("redelivery", redelivery) or 0.0
        self.limits = limits
        self._producer: Producer | None = None
        self._consumer: GroupMember | None = None
        self._threads: ThreadPoolExecutor | None = None

    async def open(self) -> None:
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="kafka")
        with _outages():
            if self._group is None:  # otherwise it is created on first use
                self._producer = await self._in_thread(self._connected_producer)
            else:
                self._consumer = await self._in_thread(self._connected_consumer)

    def _connected_producer(self) -> Producer:
        from confluent_kafka import Producer

        options = {name: one for name, one in self._options.items() if name not in SOURCE_ONLY}
        producer = Producer(
            {
                "linger.ms": 2,
                **options,
                **self._common(),
                "enable.idempotence": True,
                "acks": "all",
                "message.timeout.ms": int(DELIVERY_TIMEOUT_S * 1000),
            }
        )
        _require_broker(producer)
        return producer

    def _connected_consumer(self) -> GroupMember:
        consumer = GroupMember(
            {
                "auto.offset.reset": "earliest",
                **self._options,
                **self._common(),
                "group.id": self._group,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
            },
            str(self._topic),
        )
        try:
            _require_broker(consumer.client)
        except BaseException:
            consumer.client.close()
            raise
        consumer.start()
        return consumer

    def _common(self) -> dict[str, object]:
        # Errors are raised by calls; the client would log them repeatedly.
        return {"bootstrap.servers": self._servers, "log_level": 0, "error_cb": _ignore}

    async def close(self) -> None:
        threads, self._threads = self._threads, None
        producer, self._producer = self._producer, None
        consumer, self._consumer = self._consumer, None
        if producer is not None:
            producer.purge(blocking=False)  # later messages would overtake queued ones
        if threads is None:
            return
        loop = asyncio.get_running_loop()
        try:
            if consumer is not None:
                await loop.run_in_executor(threads, consumer.client.close)
            if producer is not None:
                await loop.run_in_executor(threads, producer.flush, 1.0)
        finally:
            threads.shutdown(wait=False)

    async def _in_thread(self, function: Callable[..., T], *given: object) -> T:
        """Call a function in the one thread that uses the client, one call at a time."""
        if self._threads is None:
            raise SinkDown("it is not open")
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *given)

    # Sink

    async def send(self, messages: Sequence[Message]) -> Sequence[SendOutcome]:
        """Produce all, and wait for the delivery report of each."""
        if (producer := self._producer) is None:
            with _outages():
                producer = self._producer = await self._in_thread(self._connected_producer)
        try:
            reports = await self._in_thread(self._produce, producer, messages)
        except asyncio.CancelledError:
            producer.purge(blocking=False)
            raise
        return [self._outcome(report) for report in reports]

    def _produce(self, producer: Producer, messages: Sequence[Message]) -> list[object]:
        """The errors of messages, by position; None for each that all replicas have."""
        reports: list[object] = [NO_REPORT] * len(messages)
        for position, message in enumerate(messages):
            topic = name_of(self._topic, message)
            if isinstance(topic, Retry):
                reports[position] = topic
                continue
            try:
                self._produce_one(producer, topic, message, _reporter(reports, position))
            except Exception as error:
                reports[position] = error
        producer.flush(DELIVERY_TIMEOUT_S + 5.0)
        return reports

    def _produce_one(self, producer: Producer, topic: str, message: Message, report: Any) -> None:
        headers = to_wire(message, lambda name, value: True)
        headers.pop(KEY, None)  # the record has it
        given = {
            "value": message.raw,
            "key": None if message.key is None else message.key.encode(),
            "headers": [(ID, message.id.encode()), *((k, v.encode()) for k, v in headers.items())],
            "on_delivery": report,
        }
        while True:
            try:
                producer.produce(topic, **given)
                return
            except BufferError:  # the client's buffer is full: send some first
                producer.poll(0.1)

    def _outcome(self, report: object) -> SendOutcome:
        from confluent_kafka import KafkaError, KafkaException

        error = report.args[0] if isinstance(report, KafkaException) else report
        if error is None or isinstance(error, Retry):
            return error
        if not isinstance(error, KafkaError):
            raise error if isinstance(error, BaseException) else SinkDown(str(error))
        reason = f"{error.name()}: {error.str()}"
        if error.code() in _bad(KafkaError):
            return Bad(reason)
        if error.code() in _of_topic(KafkaError) and callable(self._topic):
            return Retry(reason)
        # No message is at fault. Other messages of the batch may have been sent: they are sent
        # again, with the same id.
        raise SinkDown(reason)

    # Source

    async def receive(self, limit: int, wait: float) -> Sequence[Message]:
        """Poll in slices, so that a stop does not wait for a poll."""
        consumer = self._require_group()
        until = time.monotonic() + wait
        while True:
            left = min(POLL_SLICE_S, max(0.0, until - time.monotonic()))
            polling = asyncio.ensure_future(self._in_thread(consumer.poll, limit, left))
            with _outages():
                try:
                    records = await asyncio.shield(polling)
                except asyncio.CancelledError:
                    await returned(polling, consumer)
                    raise
            if records or time.monotonic() >= until:
                return [read_record(record) for record in records]

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        """Commit the offsets of each partition up to the first message that is not stored."""
        consumer = self._require_group()
        with _outages():
            await self._in_thread(consumer.stored, [one.receipt for one in messages])

    async def hand_back(self, messages: Sequence[Message]) -> None:
        """Seek to the first of these messages in each partition."""
        consumer = self._require_group()
        with _outages():
            await self._in_thread(consumer.go_back, [one.receipt for one in messages])

    async def lag(self) -> int | None:
        """The number of records that the group has not committed, in all partitions."""
        consumer = self._require_group()
        with _outages():
            return await asyncio.to_thread(consumer.lag)

    def _require_group(self) -> GroupMember:
        if self._group is None:
            raise InvalidOption(
                option="group", reason='must be given for a source: Kafka(…, topic=…, group="…")'
            )
        if self._consumer is None:
            raise SinkDown("it is not open")
        return self._consumer

    def __repr__(self) -> str:
        group = "" if self._group is None else f", group {self._group}"
        return f"Kafka {self._servers}, topic {shown(self._topic)}{group}"


NO_REPORT = "the client did not report the delivery in time"


def _reporter(reports: list[Any], position: int) -> Callable[[Any, Any], None]:
    def report(error: KafkaError | None, record: Record) -> None:
        reports[position] = error

    return report


def _require_broker(client: Producer | Consumer) -> None:
    client.list_topics(timeout=METADATA_TIMEOUT_S)


def _bad(errors: Any) -> set[int]:
    """Error codes for which the message is at fault."""
    return {
        errors.MSG_SIZE_TOO_LARGE, errors.INVALID_MSG, errors.INVALID_MSG_SIZE,
        errors.INVALID_RECORD, errors.INVALID_TIMESTAMP, errors.RECORD_LIST_TOO_LARGE,
        errors.TOPIC_EXCEPTION, errors.POLICY_VIOLATION, errors._INVALID_ARG,
    }  # fmt: skip


def _of_topic(errors: Any) -> set[int]:
    return {
        errors.UNKNOWN_TOPIC_OR_PART, errors._UNKNOWN_TOPIC, errors._UNKNOWN_PARTITION,
        errors.TOPIC_AUTHORIZATION_FAILED,
    }  # fmt: skip


@contextmanager
def _outages() -> Iterator[None]:
    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException as error:
        raise SinkDown(f"{type(error).__name__}: {error}") from error


def _ignore(error: KafkaError) -> None:
    """Ignore an error that calls raise as well."""


def _checked_options(options: object) -> dict[str, object]:
    if not isinstance(options, Mapping):
        reason = f"must map names of librdkafka settings to values, not {options!r:.80}"
        raise InvalidOption(option="options", reason=reason)
    for name in OURS:
        if name in options:
            raise InvalidOption(option="options", reason=f"cannot have {name}: the bridge sets it")
    return dict(options)
