"""A Celery queue in RabbitMQ: messages move to a queue of the bridge, and are stored from there.

    [celery] ─▶ publish and acknowledge in one transaction ─▶ [outlast.celery] ─▶ job ─▶ acknowledge

A message that was stored but not acknowledged is delivered again from a queue that only bridges
read, so that no Celery worker runs a task that is already a job.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .protocols import Message
from .rabbit import DEFAULT_PREFETCH, Rabbit, RabbitConsumer, rabbit_outages

if TYPE_CHECKING:
    from aio_pika.abc import AbstractIncomingMessage

OWN_PREFIX = "outlast."
POLL_S = 0.2  # of one queue, before the other


class MovedQueue:
    """A source: the raw messages of one queue."""

    def __init__(self, url: str, queue: str, prefetch: int | None, redelivery: float) -> None:
        held = DEFAULT_PREFETCH if prefetch is None else prefetch
        self._queue, self._prefetch = queue, held
        self._moved_to = f"{OWN_PREFIX}{queue}"
        self._own = Rabbit(url, queue=self._moved_to, prefetch=held, redelivery=redelivery)
        self._channel: Any = None
        self._consumer: RabbitConsumer | None = None

    @property
    def redelivery(self) -> float:
        return self._own.redelivery

    async def open(self) -> None:
        self._moving = asyncio.Lock()  # workers of one event loop share the channel's transaction
        await self._own.open()
        with rabbit_outages():
            self._channel = channel = await self._own.channel(publisher_confirms=False)
            await channel.declare_queue(self._moved_to, durable=True)
            underlay = await channel.get_underlay_channel()
            await underlay.tx_select()
            self._consumer = RabbitConsumer(channel)
            await self._consumer.start(self._queue, self._prefetch)

    async def close(self) -> None:
        self._channel = self._consumer = None
        await self._own.close()

    async def receive(self, limit: int, wait: float) -> Sequence[Message]:
        until, pause = time.monotonic() + wait, 0.0
        while True:
            moved = await self._move(limit, min(pause, max(0.0, until - time.monotonic())))
            found = await self._own.receive(limit, POLL_S if moved else 0.0)
            if found or time.monotonic() >= until:
                return found
            pause = POLL_S

    async def _move(self, limit: int, wait: float) -> int:
        """Move messages from Celery's queue, all of them or none."""
        assert self._consumer is not None
        with rabbit_outages():
            found = await self._consumer.take(limit, wait)
            if found:
                async with self._moving:
                    await self._move_all(found)
        return len(found)

    async def _move_all(self, found: Sequence[AbstractIncomingMessage]) -> None:
        channel = self._channel
        underlay = await channel.get_underlay_channel()
        try:
            for one in found:
                await self._publish(underlay, one)
                await one.ack()
            # The broker routes at the commit, and drops messages without a queue: the bridge's
            # queue may have been deleted since it was declared.
            await underlay.queue_declare(self._moved_to, durable=True)
            await underlay.tx_commit()
        except BaseException:  # otherwise another worker's commit would include a part of it
            with suppress(Exception):
                await channel.close()
            raise

    async def _publish(self, underlay: Any, received: AbstractIncomingMessage) -> None:
        properties: Any = received.properties
        await underlay.basic_publish(
            received.body, routing_key=self._moved_to, properties=properties
        )

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        await self._own.acknowledge(messages)

    async def hand_back(self, messages: Sequence[Message]) -> None:
        await self._own.hand_back(messages)

    async def lag(self) -> int | None:
        """The number of messages in both queues."""
        with rabbit_outages():
            channel = await self._own.channel(publisher_confirms=False)
            try:
                declared = await channel.declare_queue(self._queue, passive=True)
                theirs = int(declared.declaration_result.message_count or 0)
            finally:
                await channel.close()
        return theirs + (await self._own.lag() or 0)

    def __repr__(self) -> str:
        return repr(self._own)
