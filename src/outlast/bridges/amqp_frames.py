"""AMQP frames that the client library cannot decode, rewritten so that it can.

The library closes the connection for a frame that it cannot decode. The broker then delivers the
same message again, and all other unacknowledged messages: one message would stop a source. AMQP
does not define the encoding of short strings, and RabbitMQ does not check it.

    bytes that are not UTF-8     \\xff, as in `backslashreplace`; a digest where that is too long
    a timestamp out of range     a number in a header, else omitted
    headers that nest too deep   omitted
    anything else                a message without properties
"""

from __future__ import annotations

import asyncio
import hashlib
import struct
from collections.abc import Callable

METHOD_FRAME, HEADER_FRAME = 1, 2
PREFIX = struct.Struct(">BHI")  # type, channel, size
END = b"\xce"
BASIC_DELIVER = b"\x00\x3c\x00\x3c"
MAX_SHORT_BYTES = 255
CONTENT_BYTES = 12  # class, weight and size of the body, before the flags
HEADERS_FLAG, TIMESTAMP_FLAG = 1 << 13, 1 << 6
SHORT = b""  # a short string, a type that tables do not have
# Properties in their order, by the bit that marks their presence.
PROPERTIES = (
    (15, SHORT), (14, SHORT), (13, b"F"), (12, b"B"), (11, b"B"), (10, SHORT), (9, SHORT),
    (8, SHORT), (7, SHORT), (6, b"T"), (5, SHORT), (4, SHORT), (3, SHORT), (2, SHORT),
)  # fmt: skip
FIELD_BYTES = {
    b"t": 1, b"b": 1, b"B": 1, b"s": 2, b"u": 2, b"I": 4, b"i": 4, b"l": 8, b"L": 8, b"f": 4,
    b"d": 8, b"D": 5, b"T": 8, b"V": 0, b"\x00": 0,
}  # fmt: skip


class FrameReader:
    """A stream that reads whole frames and makes them decodable. It has the methods of
    `asyncio.StreamReader` that the library calls."""

    def __init__(self, stream: asyncio.StreamReader) -> None:
        self._stream = stream
        self._frame = b""

    def at_eof(self) -> bool:
        return not self._frame and self._stream.at_eof()

    async def read(self, limit: int = -1) -> bytes:
        frame, self._frame = self._frame, b""
        return frame + await self._stream.read(limit)

    async def readexactly(self, size: int) -> bytes:
        if not self._frame:
            self._frame = await self._read_frame()
        found, self._frame = self._frame[:size], self._frame[size:]
        return found

    async def _read_frame(self) -> bytes:
        prefix = await self._stream.readexactly(PREFIX.size)
        if prefix.startswith(b"AMQP"):  # a server of another protocol version sends no frame
            return prefix
        rest = await self._stream.readexactly(PREFIX.unpack(prefix)[2] + len(END))
        return readable_frame(prefix + rest)


def readable_frame(frame: bytes) -> bytes:
    """The frame, or a frame with the parts that the library can decode."""
    kind, channel, _ = PREFIX.unpack(frame[: PREFIX.size])
    payload = frame[PREFIX.size : -1]
    rewrites: tuple[Callable[[bytes], bytes], ...] = ()
    if kind == HEADER_FRAME:
        rewrites = (_with_properties, _without_headers, _without_properties)
    elif kind == METHOD_FRAME and payload.startswith(BASIC_DELIVER):
        rewrites = (_with_names,)
    if not rewrites or _is_readable(frame):
        return frame
    for rewrite in rewrites:
        try:
            payload_made = rewrite(payload)
        except (IndexError, KeyError, RecursionError, ValueError, struct.error):
            continue
        made = PREFIX.pack(kind, channel, len(payload_made)) + payload_made + END
        if _is_readable(made):
            return made
    return frame


def _is_readable(frame: bytes) -> bool:
    import pamqp.frame

    try:
        pamqp.frame.unmarshal(frame)
    except Exception:  # any exception would end the library's task
        return False
    return True


def _with_properties(payload: bytes) -> bytes:
    """The header frame of a message, with the properties that can be decoded."""
    cursor = _Cursor(payload, CONTENT_BYTES)
    flags = int.from_bytes(cursor.take(2), "big")
    kept, parts = 0, []
    for bit, kind in PROPERTIES:
        flag = 1 << bit
        if not flags & flag:
            continue
        value = cursor.short_string() if kind == SHORT else cursor.field(kind)
        if flag != TIMESTAMP_FLAG or _is_time(value):
            kept |= flag
            parts.append(value)
    return payload[:CONTENT_BYTES] + kept.to_bytes(2, "big") + b"".join(parts)


def _without_headers(payload: bytes) -> bytes:
    """The header frame of a message, without the table of headers."""
    start = CONTENT_BYTES + 2
    cursor = _Cursor(payload, start)
    flags = int.from_bytes(payload[CONTENT_BYTES:start], "big")
    for bit, _ in PROPERTIES[:2]:
        if flags & 1 << bit:
            cursor.short_string()
    before = cursor.position
    cursor.take(int.from_bytes(cursor.take(4), "big"))
    rest = (flags & ~HEADERS_FLAG).to_bytes(2, "big") + payload[start:before]
    return _with_properties(payload[:CONTENT_BYTES] + rest + payload[cursor.position :])


def _without_properties(payload: bytes) -> bytes:
    return payload[:CONTENT_BYTES] + b"\x00\x00"


def _with_names(payload: bytes) -> bytes:
    """A delivery frame with decodable names of the consumer, the exchange and the routing key."""
    cursor = _Cursor(payload, len(BASIC_DELIVER))
    parts = (cursor.short_string(), cursor.take(9), cursor.short_string(), cursor.short_string())
    return BASIC_DELIVER + b"".join(parts)


class _Cursor:
    """Reads values from a payload, each in the form in which it is written back."""

    def __init__(self, payload: bytes, position: int) -> None:
        self._payload, self.position = payload, position

    def take(self, size: int) -> bytes:
        found = self._payload[self.position : self.position + size]
        if len(found) < size:
            raise ValueError("the frame is too short")
        self.position += size
        return found

    def short_string(self) -> bytes:
        text = _utf8(self.take(self.take(1)[0]))
        return bytes([len(text)]) + text

    def field(self, kind: bytes) -> bytes:
        """A value of a table; strings in tables are long strings, which may be any bytes."""
        if kind == b"F":
            return self._items(named=True)
        if kind == b"A":
            return self._items(named=False)
        if kind in (b"S", b"x"):
            size = self.take(4)
            return size + self.take(int.from_bytes(size, "big"))
        return self.take(FIELD_BYTES[kind])

    def _items(self, *, named: bool) -> bytes:
        end = int.from_bytes(self.take(4), "big") + self.position
        parts = []
        while self.position < end:
            if named:
                parts.append(self.short_string())
            kind = self.take(1)
            value = self.field(kind)
            is_number = kind == b"T" and not _is_time(value)
            parts += [b"l" if is_number else kind, value]
        items = b"".join(parts)
        return len(items).to_bytes(4, "big") + items


def _utf8(given: bytes) -> bytes:
    text = given.decode("utf-8", "backslashreplace").encode()
    if len(text) <= MAX_SHORT_BYTES:
        return text
    return b"sha256:" + hashlib.sha256(given).hexdigest().encode()  # a prefix may not be unique


def _is_time(value: bytes) -> bool:
    import pamqp.decode

    try:
        pamqp.decode.timestamp(value)
    except Exception:
        return False
    return True
