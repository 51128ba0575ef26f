"""RabbitMQ: an exchange or a queue as a sink, a queue as a source.

A message is persistent, with its id as `message_id`, its headers, and its key in the header
`outlast-key`. It is published as mandatory with publisher confirms. An unroutable message is bad if
it has its own routing key; if all messages have the same one, the sink is down.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from ..model.errors import InvalidOption
from ..model.ids import new_instance_id
from ..model.options import check_whole, seconds
from .amqp_frames import FrameReader
from .client_library import require_client
from .protocols import DEFAULT_REDELIVERY_S, Bad, Limits, Message, Retry, SendOutcome, SinkDown
from .targets import Target, check_target, name_of, shown, without_password
from .wire_headers import from_wire, to_wire

if TYPE_CHECKING:
    from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage

log = logging.getLogger("outlast.bridges")

CONNECT_TIMEOUT_S = 10.0
MAX_SHORT_BYTES = 255  # of a routing key or a header name
DEFAULT_LIMITS = Limits(items=500, bytes=16_000_000)
DEFAULT_PREFETCH = 200


class Rabbit:
    """`Rabbit(url, exchange="shop", routing_key="orders")` or `Rabbit(url, queue="orders")` for an
    outbox; the routing key may be a function of the message. `Rabbit(url, queue="mail")` for a
    source, which is given up to `prefetch` messages at once.

    Exchanges, queues and bindings are yours to declare. A received message is known by its
    `message_id`, or by what `identify` makes of it; one without either is a new one each time it is
    delivered."""

    def __init__(  # noqa: PLR0913 - as the contract has it
        self,
        url: str,
        *,
        exchange: str | None = None,
        routing_key: Target | None = None,
        queue: str | None = None,
        prefetch: int = DEFAULT_PREFETCH,
        identify: Callable[[Message], str] | None = None,
        redelivery: float = DEFAULT_REDELIVERY_S,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        require_client("aio_pika", "rabbit", "RabbitMQ")
        self._url = checked_amqp_url(url)
        if (exchange is None) == (queue is None):
            raise InvalidOption(option="queue", reason="or exchange must be given, and not both")
        if queue is not None and routing_key is not None:
            raise InvalidOption(option="routing_key", reason="is for an exchange")
        if routing_key is not None and routing_key != "":  # a fanout exchange needs none
            check_target("routing_key", routing_key)
        check_whole("prefetch", prefetch, 1, 65_535)
        self._exchange, self._queue = exchange or "", queue
        self._routing_key: Target = routing_key or queue or ""
        self._prefetch = prefetch
        self._identify = identify
        self.redelivery = seconds("redelivery", redelivery) or 0.0
        self.limits = limits
        self._connection: AbstractConnection | None = None
        self._publisher: AbstractChannel | None = None
        self._consumer: RabbitConsumer | None = None

    async def open(self) -> None:
        from aio_pika.connection import Connection, make_url

        # Not a "robust" connection: a session that failed is closed and opened anew. And not by
        # `aio_pika.connect`, which does not close a connection that fails.
        self._connection = Connection(make_url(self._url))
        self._connection.kwargs["transport_factory"] = _transport_factory(self._url)
        with rabbit_outages():
            await self._connection.connect(timeout=CONNECT_TIMEOUT_S)

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        self._publisher = self._consumer = None
        if connection is not None:
            await connection.close()

    async def channel(self, **given: Any) -> AbstractChannel:
        if self._connection is None or self._connection.is_closed:
            raise SinkDown("it is not connected")
        return await self._connection.channel(**given)

    # Sink

    async def send(self, messages: Sequence[Message]) -> Sequence[SendOutcome]:
        """Publish all, then wait for the confirm of each."""
        with rabbit_outages():
            if self._publisher is None or self._publisher.is_closed:
                self._publisher = await self.channel(publisher_confirms=True, on_return_raises=True)
            channel = await self._publisher.get_underlay_channel()
        answers = await asyncio.gather(
            *(self._publish(channel, message) for message in messages), return_exceptions=True
        )
        errors = [one for one in answers if isinstance(one, BaseException)]
        for error in errors:
            with rabbit_outages():
                raise error
        return [one for one in answers if not isinstance(one, BaseException)]

    async def _publish(self, channel: Any, message: Message) -> SendOutcome:
        from aio_pika import DeliveryMode
        from aio_pika import Message as Publishing
        from aio_pika.exceptions import DeliveryError, PublishError

        routing_key = name_of(self._routing_key, message)
        if isinstance(routing_key, Retry):
            return routing_key
        if len(routing_key.encode()) > MAX_SHORT_BYTES:
            return Bad(f"its routing key is longer than {MAX_SHORT_BYTES} bytes")
        publishing = Publishing(
            message.raw,
            message_id=message.id,
            headers=dict(to_wire(message, _fits)),
            delivery_mode=DeliveryMode.PERSISTENT,
        )
        try:
            await channel.basic_publish(
                publishing.body,
                exchange=self._exchange,
                routing_key=routing_key,
                properties=publishing.properties,
                mandatory=True,
            )
        except PublishError:
            return self._unroutable(routing_key)
        except DeliveryError as error:  # rejected by a full queue, or an error of the broker
            return Retry(str(error))
        return None

    def _unroutable(self, routing_key: str) -> Bad:
        at = f"exchange {self._exchange!r}" if self._exchange else "the default exchange"
        problem = f"{at} has no queue for the routing key {routing_key!r}"
        if isinstance(self._routing_key, str):  # so no message can be sent
            raise SinkDown(f"{problem}: declare and bind one")
        return Bad(problem)

    # Source

    async def receive(self, limit: int, wait: float) -> Sequence[Message]:
        """The messages that the broker has pushed, up to `prefetch` unacknowledged ones."""
        with rabbit_outages():
            if self._consumer is None:
                queue = self._require_queue()
                consumer = RabbitConsumer(await self.channel(publisher_confirms=False))
                await consumer.start(queue, self._prefetch)
                self._consumer = consumer
            found = await self._consumer.take(limit, wait)
        return [self._read(one) for one in found]

    def _read(self, received: AbstractIncomingMessage) -> Message:
        key, headers = from_wire({name: _text(value) for name, value in received.headers.items()})
        message = Message(received.message_id or "", received.body, key, headers, received)
        id = message.id if self._identify is None else self._identified(message)
        return Message(str(id or new_instance_id()), received.body, key, headers, received)

    def _identified(self, message: Message) -> str:
        """The id of a message. A failure of `identify` must not stop the source."""
        assert self._identify is not None
        try:
            return self._identify(message)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            log.warning("%r: identify failed, so its message_id is its id: %s", self, reason)
            return message.id

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        with rabbit_outages():
            for one in messages:
                await one.receipt.ack()

    async def hand_back(self, messages: Sequence[Message]) -> None:
        """Requeue messages, at their position in the queue if RabbitMQ can."""
        with rabbit_outages():
            for one in messages:
                await one.receipt.nack(requeue=True)

    async def lag(self) -> int | None:
        """The number of ready messages, and of messages held here."""
        queue = self._require_queue()
        with rabbit_outages():
            channel = await self.channel(publisher_confirms=False)
            try:
                declared = await channel.declare_queue(queue, passive=True)
                waiting = len(self._consumer.arrived) if self._consumer is not None else 0
                return int(declared.declaration_result.message_count or 0) + waiting
            finally:
                with suppress(Exception):
                    await channel.close()

    def _require_queue(self) -> str:
        if self._queue is None:
            raise InvalidOption(
                option="queue", reason='must be given for a source: Rabbit(url, queue="…")'
            )
        return self._queue

    def __repr__(self) -> str:
        if self._queue is not None:
            return f"RabbitMQ {without_password(self._url)}, queue {self._queue}"
        at = f"exchange {self._exchange}, routing key {shown(self._routing_key)}"
        return f"RabbitMQ {without_password(self._url)}, {at}"


class RabbitConsumer:
    """A channel to which the broker pushes the messages of a queue."""

    def __init__(self, channel: AbstractChannel) -> None:
        self._channel = channel
        self.arrived: deque[AbstractIncomingMessage] = deque()
        self._changed = asyncio.Event()
        self._ended: BaseException | None = None

    async def start(self, queue: str, prefetch: int) -> None:
        await self._channel.set_qos(prefetch_count=prefetch)
        found = await self._channel.get_queue(queue, ensure=True)
        self._channel.close_callbacks.add(self._closed)
        underlay: Any = await self._channel.get_underlay_channel()
        underlay.on_consumer_cancel_callbacks.add(self._cancelled)
        await found.consume(self._arrived)

    async def take(self, limit: int, wait: float) -> list[AbstractIncomingMessage]:
        if not self.arrived:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._changed.wait()
        if self._ended is not None:  # the broker has requeued the messages held here
            raise SinkDown(f"{type(self._ended).__name__}: {self._ended}")
        self._changed.clear()
        return [self.arrived.popleft() for _ in range(min(limit, len(self.arrived)))]

    async def _arrived(self, message: AbstractIncomingMessage) -> None:
        self.arrived.append(message)
        self._changed.set()

    def _closed(self, channel: object, error: BaseException | None = None) -> None:
        self._end(error or ConnectionError("the channel was closed"))

    def _cancelled(self, frame: object) -> None:
        self._end(ConnectionError("the broker ended the consumer: was the queue deleted?"))

    def _end(self, error: BaseException) -> None:
        self._ended = self._ended or error
        self._changed.set()


@contextmanager
def rabbit_outages() -> Iterator[None]:
    """Raise errors of the connection and of declarations as `SinkDown`. Other errors that close a
    channel are passed on: a message is at fault, and the caller searches for it."""
    from aio_pika import exceptions

    try:
        yield
    except exceptions.ChannelPreconditionFailed:  # such as a message that is too large
        raise
    except (exceptions.AMQPError, exceptions.ChannelInvalidStateError, OSError) as error:
        raise SinkDown(f"{type(error).__name__}: {error}") from error


def _transport_factory(url: str) -> object:
    """A transport whose frames the library can decode, whatever the headers of a message are."""
    from aiormq.connection import TCPTransportFactory, TLSTransportFactory

    kind: Any = TLSTransportFactory if url.startswith("amqps:") else TCPTransportFactory

    class ReadableFrames(kind):  # type: ignore[misc]
        async def create(self, *given: object, **options: object) -> Any:
            reader, writer = await super().create(*given, **options)
            return FrameReader(reader), writer

    return ReadableFrames()


def _fits(name: str, value: str) -> bool:
    return len(name.encode()) <= MAX_SHORT_BYTES


def _text(value: object) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def checked_amqp_url(url: object) -> str:
    if not isinstance(url, str) or not url.startswith(("amqp://", "amqps://")):
        raise InvalidOption(option="url", reason="must be like amqp://127.0.0.1:5672/")
    return url
