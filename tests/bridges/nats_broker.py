"""NATS for the kill tests: subjects `orders` (sink) and `mail` (source), each of its stream."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

import nats

from outlast.bridges import Message, Nats

T = TypeVar("T")


def sink() -> Nats:
    return Nats(os.environ["OUTLAST_TEST_NATS"], subject="orders")


def source() -> Nats:
    url = os.environ["OUTLAST_TEST_NATS"]
    return Nats(url, subject="mail", durable="sync", ack_wait=1.0)


def talk(function: Callable[[Any], Awaitable[T]]) -> T:
    """Call a function with a JetStream context."""

    async def main() -> T:
        client = await nats.connect(os.environ["OUTLAST_TEST_NATS"])
        try:
            return await function(client.jetstream())
        finally:
            await client.close()

    return asyncio.run(main())


def create(*names: str, **config: Any) -> None:
    """Empty streams, each of the subject of its name."""

    async def main(js: Any) -> None:
        for info in await js.streams_info():
            await js.delete_stream(info.config.name)
        for name in names:
            await js.add_stream(name=name, subjects=[name, f"{name}.>"], **config)

    talk(main)


def put(messages: Sequence[Message]) -> None:
    async def main(js: Any) -> None:
        for one in messages:
            await js.publish("mail", one.raw, headers={"Nats-Msg-Id": one.id})

    talk(main)


def put_headers(headers: bytes, body: bytes) -> None:
    """A message with any bytes as its headers, as the client library would not send it."""
    where = urlsplit(os.environ["OUTLAST_TEST_NATS"])
    block = b"NATS/1.0\r\n" + headers + b"\r\n\r\n"
    sizes = b"%d %d" % (len(block), len(block) + len(body))
    with socket.create_connection((where.hostname, where.port), 10) as connection:
        connection.sendall(b'CONNECT {"headers": true, "verbose": false}\r\n')
        connection.sendall(b"HPUB mail " + sizes + b"\r\n" + block + body + b"\r\nPING\r\n")
        with connection.makefile("rb") as answers:
            assert any(line.startswith(b"PONG") for line in answers)


def sent(stream: str = "orders") -> list[Message]:
    async def main(js: Any) -> list[Message]:
        state = (await js.stream_info(stream)).state
        found = []
        for number in range(state.first_seq, state.last_seq + 1 if state.messages else 0):
            raw = await js.get_msg(stream, number)
            headers = dict(raw.headers or {})
            id, key = headers.pop("Nats-Msg-Id", ""), headers.pop("outlast-key", None)
            found.append(Message(id, raw.data, key, headers))
        return found

    return talk(main)


def left() -> int:
    async def main(js: Any) -> int:
        info = await js.consumer_info("mail", "sync")
        return int(info.num_pending) + int(info.num_ack_pending)

    return talk(main)
