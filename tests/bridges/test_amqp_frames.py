"""RabbitMQ: headers of messages that the client library cannot decode. None stops a source."""

from __future__ import annotations

import asyncio
import struct
from typing import NamedTuple

import pytest

from outlast import Context, Outlast
from outlast.bridges import Message
from outlast.bridges.amqp_frames import FrameReader, readable_frame
from tests.bridges import rabbit_broker
from tests.support import aeventually
from tests.worker.working import work

BAD = b"\xff\xfe"  # not UTF-8, and \xff\xfe as text
BAD_TEXT = r"\xff\xfe"


def short(text: bytes) -> bytes:
    return bytes([len(text)]) + text


def long(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def nested(levels: int) -> bytes:
    array = b"A" + long(b"")
    for _ in range(levels):
        array = b"A" + long(array)
    return array


class Odd(NamedTuple):
    """Properties of a message as bytes, and what it is stored with."""

    flags: int
    properties: bytes
    id: str | None = None  # None: its own
    headers: dict[str, str] = {}  # noqa: RUF012 - never changed
    routing_key: bytes = b"mail"


ID = 1 << 7
HEADERS = 1 << 13
OWN_ID = short(b"its own")
ODD = {
    "message id": Odd(ID, short(BAD), BAD_TEXT),
    "type": Odd(ID | 1 << 5, OWN_ID + short(BAD)),
    "content type": Odd(ID | 1 << 15, short(BAD) + OWN_ID),
    "routing key": Odd(ID, OWN_ID, routing_key=BAD),
    "name of a header": Odd(
        HEADERS | ID, long(short(BAD) + b"S" + long(b"v")) + OWN_ID, headers={BAD_TEXT: "v"}
    ),
    "name in a header": Odd(
        HEADERS | ID,
        long(short(b"t") + b"F" + long(short(BAD) + b"I\x00\x00\x00\x07")) + OWN_ID,
        headers={"t": str({BAD_TEXT: 7})},
    ),
    "value of a header": Odd(
        HEADERS | ID, long(short(b"n") + b"S" + long(BAD)) + OWN_ID, headers={"n": BAD_TEXT}
    ),
    "time in a header": Odd(
        HEADERS | ID,
        long(short(b"n") + b"T" + struct.pack(">Q", 2**48)) + OWN_ID,
        headers={"n": str(2**48)},
    ),
    "timestamp": Odd(ID | 1 << 6, OWN_ID + struct.pack(">Q", 2**63)),
    "deep headers": Odd(HEADERS | ID, long(short(b"d") + nested(3000)) + OWN_ID),
}


@pytest.mark.kinds("sqlite")
async def test_no_header_of_a_message_stops_a_source(ol: Outlast, rabbit_url: str) -> None:
    """R013, R123: each is a job, with its body, and so is every message beside it."""
    seen: dict[int, Message] = {}

    @ol.task
    async def sync(body: int, ctx: Context) -> None:
        assert ctx.message is not None
        seen[body] = ctx.message

    def put() -> None:
        for n, odd in enumerate(ODD.values()):
            rabbit_broker.put([Message(f"good {n}", b"%d" % (100 + n))])
            given = odd.properties.replace(OWN_ID, short(b"odd %d" % n))
            rabbit_broker.put_header(odd.flags, given, b"%d" % n, odd.routing_key)

    await asyncio.to_thread(put)
    ol.source("mail", rabbit_broker.source(), task=sync, batch=10, wait=1)
    async with work(ol):
        await aeventually(lambda: ol.counts()["succeeded"] == 2 * len(ODD), 30)
    for n, (name, odd) in enumerate(ODD.items()):
        assert (seen[n].id, dict(seen[n].headers)) == (odd.id or f"odd {n}", odd.headers), name
    assert await asyncio.to_thread(rabbit_broker.left) == 0


def test_a_frame_that_can_be_read_is_left_as_it_is() -> None:
    frame = _frame(2, struct.pack(">HHQH", 60, 0, 1, ID) + short("ü".encode()))
    assert readable_frame(frame) is frame


def test_long_texts_are_told_apart() -> None:
    """R123: two messages with ids that cannot be kept as they are stay two."""
    ids = {_message_id(b"\xff" * 254 + bytes([last])) for last in (0xFE, 0xFF)}
    assert len(ids) == 2 and all(id.startswith("sha256:") for id in ids)


@pytest.mark.parametrize("cut", range(1, 8))
def test_properties_of_any_bytes_can_be_read(cut: int) -> None:
    """R013: then the message has none."""
    import pamqp.frame

    whole = long(short(BAD) + b"?" + long(b"v")) + short(b"i")
    frame = _frame(2, struct.pack(">HHQH", 60, 0, 5, HEADERS | ID) + whole[:-cut])
    read = pamqp.frame.unmarshal(readable_frame(frame))[2]
    assert read.body_size == 5  # type: ignore[union-attr]


async def test_a_server_of_another_version_is_told() -> None:
    """It sends its protocol header, which is no frame, and closes the connection."""
    stream = asyncio.StreamReader()
    stream.feed_data(b"AMQP\x00\x01\x00\x00")
    reader = FrameReader(stream)
    async with asyncio.timeout(5):
        assert await reader.readexactly(1) + await reader.readexactly(6) == b"AMQP\x00\x01\x00"


def _message_id(given: bytes) -> str:
    import pamqp.frame

    frame = _frame(2, struct.pack(">HHQH", 60, 0, 1, ID) + short(given))
    read = pamqp.frame.unmarshal(readable_frame(frame))[2]
    return str(read.properties.message_id)  # type: ignore[union-attr]


def _frame(kind: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, 1, len(payload)) + payload + b"\xce"
