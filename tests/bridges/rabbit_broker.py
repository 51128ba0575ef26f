"""RabbitMQ for the kill tests: queues `orders` (sink) and `mail` (source)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import aio_pika

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
