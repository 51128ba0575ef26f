"""RabbitMQ for the kill tests: queues `orders` (sink) and `mail` (source)."""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import aio_pika
from aiormq.abc import ChannelFrame

from outlast.bridges import Message, Rabbit

T = TypeVar("T")


def sink() -> Rabbit:
    return Rabbit(os.environ["OUTLAST_TEST_RABBIT"], queue="orders")


def source() -> Rabbit:
    return Rabbit(os.environ["OUTLAST_TEST_RABBIT"], queue="mail", prefetch=10)


def talk(function: Callable[[Any], Awaitable[T]]) -> T:
    """Call a function with a channel."""

    async def main() -> T:
        connection = await aio_pika.connect(os.environ["OUTLAST_TEST_RABBIT"])
        async with connection:
            return await function(await connection.channel())

    return asyncio.run(main())


def create(*names: str, **arguments: Any) -> None:
    """Empty queues."""

    async def main(channel: Any) -> None:
        for name in names:
            await channel.queue_delete(name)
            await channel.declare_queue(name, durable=True, arguments=arguments or None)

    talk(main)


def put(messages: Sequence[Message]) -> None:
    async def main(channel: Any) -> None:
        for one in messages:
            body = aio_pika.Message(one.raw, message_id=one.id, headers=dict(one.headers))
            await channel.default_exchange.publish(body, "mail")

    talk(main)


def put_header(flags: int, properties: bytes, body: bytes = b"1", to: bytes = b"mail") -> None:
    """A message with any bytes in its header, as the client library would not send it, bound by
    any routing key."""

    async def main(channel: Any) -> None:
        exchange = await channel.declare_exchange("all", "fanout")
        await (await channel.get_queue("mail")).bind(exchange)
        underlay = await channel.get_underlay_channel()
        publish = b"\x00\x3c\x00\x28\x00\x00\x03all" + bytes([len(to)]) + to + b"\x00"
        header = struct.pack(">HHQH", 60, 0, len(body), flags) + properties
        frames = b"".join(
            struct.pack(">BHI", kind, underlay.number, len(payload)) + payload + b"\xce"
            for kind, payload in ((1, publish), (2, header), (3, body))
        )
        await underlay.write_queue.put(ChannelFrame(frames, should_close=False))
        await channel.get_queue("mail", ensure=True)  # an error would close the channel

    talk(main)


def sent(queue: str = "orders") -> list[Message]:
    """They are gone then."""

    async def main(channel: Any) -> list[Message]:
        found = []
        taken = await channel.get_queue(queue)
        while (one := await taken.get(no_ack=True, fail=False)) is not None:
            headers = dict(one.headers)
            found.append(
                Message(one.message_id, one.body, headers.pop("outlast-key", None), headers)
            )
        return found

    return talk(main)


def left(queue: str = "mail") -> int:
    """Messages that are ready: none are, while a consumer that is alive holds them."""

    async def main(channel: Any) -> int:
        declared = await channel.declare_queue(queue, passive=True)
        return int(declared.declaration_result.message_count)

    return talk(main)
