"""Redis: a stream or a sorted set as a sink, a stream with a consumer group as a source.

A message in a stream is an entry with the fields `id`, `body`, `key` and `headers` (JSON). In a
sorted set it is a member with the same fields as one JSON text, scored by the time of the send or
by `score`; sent again, it is the same member. There, a body that is not text is in base 64, marked
by the field `encoding`.
"""

from __future__ import annotations

import base64
import json
import os
import re
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from ..model.errors import InvalidOption
from ..model.ids import new_instance_id
from ..model.options import seconds
from .client_library import require_client
from .protocols import DEFAULT_REDELIVERY_S, Bad, Limits, Message, Retry, SendOutcome
from .redis_connection import SOCKET_TIMEOUT_S, RedisConnection, is_down, redis_outages
from .targets import Target, name_of, shown

# Atomic: removing a consumer with pending messages would lose them.
REMOVE_CONSUMER = """
if #redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2]) == 0 then
    return redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
end
"""
DEFAULT_IDLE_S = 60.0
DEFAULT_LIMITS = Limits(items=1000, bytes=16_000_000)
BLOCK_S = 2.0  # of one blocking call, below the socket's time limit
PENDING_CHECK_S = 5.0  # between checks for messages of dead consumers


class Redis:
    """`Redis(url, stream="orders")` or `Redis(url, zset="orders")` for an outbox: the name, or a
    function of the message. `Redis(url, stream="mail", group="sync")` for a source; messages that a
    consumer has held for `idle` seconds go to another one. A group that is missing is created, and
    begins at `start`: "0", the first entry of the stream, "$", those that are added from then on,
    or an entry's id. `maxlen` trims a stream, about."""

    def __init__(  # noqa: PLR0913 - as the contract has it
        self,
        url: str,
        *,
        stream: Target | None = None,
        zset: Target | None = None,
        group: str | None = None,
        start: str = "0",
        maxlen: int | None = None,
        idle: float = DEFAULT_IDLE_S,
        redelivery: float = DEFAULT_REDELIVERY_S,
        score: Callable[[Message], float] = lambda message: time.time(),
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        require_client("redis", "redis", "Redis")
        self._connection = RedisConnection(url)
        if (stream is None) == (zset is None):
            raise InvalidOption(option="stream", reason="or zset must be given, and not both")
        if group is not None and not isinstance(stream, str):
            raise InvalidOption(option="group", reason="is for a stream with one name")
        if not isinstance(start, str) or not re.fullmatch(r"\$|\d{1,20}(-\d{1,20})?", start):
            reason = f"must be '0', '$' or the id of an entry, not {start!r:.80}"
            raise InvalidOption(option="start", reason=reason)
        self._start = start
        self._stream, self._zset, self._group, self._maxlen = stream, zset, group, maxlen
        self._idle = seconds("idle", idle, above=0.0) or DEFAULT_IDLE_S
        self.redelivery = seconds("redelivery", redelivery) or 0.0
        self.limits = limits
        self._score = score
        self._consumer = f"{socket.gethostname()}-{os.getpid()}-{new_instance_id()[-12:]}"
        self._claimed_at = 0.0
        self._claim_from = "0-0"

    async def open(self) -> None:
        await self._connection.open()
        if self._group is not None:
            with redis_outages():
                await self._create_group()

    async def _create_group(self) -> None:
        from redis.exceptions import ResponseError

        try:
            await self._connection.client.xgroup_create(
                self._stream, self._group, id=self._start, mkstream=True
            )
        except ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise

    async def close(self) -> None:
        try:
            if self._group is not None:
                given: Any = (self._stream, self._group, self._consumer)
                with suppress(Exception):  # Redis may be unavailable, or without scripts
                    await self._connection.client.eval(REMOVE_CONSUMER, 1, *given)
        finally:
            await self._connection.close()

    # Sink

    async def send(self, messages: Sequence[Message]) -> Sequence[SendOutcome]:
        """Send all messages in one round trip; each command has its own reply."""
        target = self._zset if self._zset is not None else self._stream
        assert target is not None
        names = [name_of(target, message) for message in messages]
        with redis_outages():
            async with self._connection.client.pipeline(transaction=False) as pipe:
                for name, message in zip(names, messages, strict=True):
                    if isinstance(name, str):
                        self._add(pipe, name, message)
                answers = await pipe.execute(raise_on_error=False)
            if answers and all(isinstance(one, Exception) and is_down(one) for one in answers):
                raise answers[0]
        left = iter(answers)
        return [_outcome(next(left)) if isinstance(name, str) else name for name in names]

    def _add(self, pipe: Any, name: str, message: Message) -> None:
        if self._zset is not None:
            member = json.dumps(_fields(message), ensure_ascii=False)
            pipe.zadd(name, {member: self._score(message)})
            return
        limit = {} if self._maxlen is None else {"maxlen": self._maxlen, "approximate": True}
        fields = {**_fields(message, text=False), "body": message.raw}
        pipe.xadd(name, fields, **limit)

    # Source

    async def receive(self, limit: int, wait: float) -> Sequence[Message]:
        """Messages of dead consumers, else new ones. It waits in short calls, and checks for dead
        consumers between them."""
        self._require_group()
        until = time.monotonic() + wait
        with redis_outages():
            while True:
                if found := await self._take_over(limit):
                    return found
                if found := await self._read_new(limit, until - time.monotonic()):
                    return found
                if time.monotonic() >= until:
                    return []

    async def _read_new(self, limit: int, wait: float) -> list[Message]:
        own_limit = self._connection.client.connection_pool.connection_kwargs.get("socket_timeout")
        wait = min(wait, BLOCK_S, (own_limit or SOCKET_TIMEOUT_S) / 2)
        block, given = max(1, int(wait * 1000)), {self._stream: ">"}
        answer = await self._connection.client.xreadgroup(
            self._group, self._consumer, given, count=limit, block=block
        )
        return [_read(*entry) for entry in _entries(answer)]

    async def _take_over(self, limit: int) -> list[Message]:
        """Take over entries that another consumer has held too long; checked at intervals."""
        now = time.monotonic()
        if now - self._claimed_at < PENDING_CHECK_S and self._claim_from == "0-0":
            return []
        self._claimed_at = now
        start, entries, *_ = await self._connection.client.xautoclaim(
            self._stream, self._group, self._consumer, int(self._idle * 1000), self._claim_from,
            count=limit,
        )  # fmt: skip
        self._claim_from = start.decode() if isinstance(start, bytes) else str(start)
        return [_read(id, fields) for id, fields in entries if fields]

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        self._require_group()
        with redis_outages():
            await self._connection.client.xack(
                self._stream, self._group, *(one.receipt for one in messages)
            )

    async def hand_back(self, messages: Sequence[Message]) -> None:
        """Mark entries as idle for long enough, so that the next check takes them over."""
        idle = int(self._idle * 1000) + 1
        with redis_outages():
            await self._connection.client.xclaim(
                self._stream, self._group, "handed-back", 0, [one.receipt for one in messages],
                idle=idle, justid=True,
            )  # fmt: skip

    async def lag(self) -> int | None:
        """The number of entries not delivered to the group, or not acknowledged by it."""
        self._require_group()
        with redis_outages():
            groups = await self._connection.client.xinfo_groups(self._stream)
        for group in groups:
            name = group["name"]
            if (name.decode() if isinstance(name, bytes) else name) == self._group:
                lag = group.get("lag")
                return None if lag is None else int(lag) + int(group["pending"])
        return None

    def _require_group(self) -> None:
        if self._group is None:
            raise InvalidOption(
                option="group", reason='must be given for a source: Redis(url, stream=…, group="…")'
            )

    def __repr__(self) -> str:
        kind, name = ("stream", self._stream) if self._stream is not None else ("zset", self._zset)
        group = "" if self._group is None else f", group {self._group}"
        assert name is not None
        return f"Redis {self._connection!r}, {kind} {shown(name)}{group}"


def _fields(message: Message, *, text: bool = True) -> dict[str, object]:
    fields: dict[str, object] = {"id": message.id}
    if message.key is not None:
        fields["key"] = message.key
    if message.headers:
        headers = dict(message.headers)
        fields["headers"] = headers if text else json.dumps(headers, ensure_ascii=False)
    if not text:
        return fields
    try:
        return {**fields, "body": message.raw.decode()}
    except UnicodeDecodeError:
        return {**fields, "body": base64.b64encode(message.raw).decode(), "encoding": "base64"}


def _read(entry: bytes, fields: dict[bytes, bytes]) -> Message:
    """The message of an entry, which another program may have written: its id is the field `id`,
    else the entry's. An entry without the field `body` becomes a JSON object of its fields."""
    at = entry.decode()
    if b"body" not in fields:
        texts = {_text(name): _text(value) for name, value in fields.items()}
        return Message(at, json.dumps(texts).encode(), receipt=entry)
    try:
        headers = json.loads(fields.get(b"headers") or b"{}")
        headers = {str(name): str(value) for name, value in headers.items()}
    except Exception:  # an entry may hold anything, and must not stop the source
        headers = {"headers": _text(fields[b"headers"])}
    key = fields.get(b"key")
    return Message(
        id=_text(fields.get(b"id") or entry),
        raw=fields[b"body"],
        key=None if key is None else _text(key),
        headers=headers,
        receipt=entry,
    )


def _entries(answer: Any) -> list[tuple[bytes, dict[bytes, bytes]]]:
    """The entries of a reply: a list of pairs (RESP2), or a mapping (RESP3)."""
    streams = answer.values() if isinstance(answer, dict) else [one for _, one in answer or []]
    found: list[tuple[bytes, dict[bytes, bytes]]] = []
    for entries in streams:
        for entry in entries:
            nested = entry if entry and isinstance(entry[0], list | tuple) else [entry]
            found += [(id, fields) for id, fields in nested]
    return found


def _outcome(answer: object) -> SendOutcome:
    from redis import exceptions

    if not isinstance(answer, Exception):
        return None
    if not isinstance(answer, exceptions.RedisError):
        raise answer
    # Errors that may pass, by themselves or after an operator's action.
    transient = (
        exceptions.AskError, exceptions.TryAgainError, exceptions.ExecAbortError,
        exceptions.NoPermissionError,
    )  # fmt: skip
    reason = f"{type(answer).__name__}: {answer}"
    about_message = isinstance(answer, exceptions.ResponseError | exceptions.DataError)
    if isinstance(answer, transient) or is_down(answer) or not about_message:
        return Retry(reason)
    return Bad(reason)


def _text(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace")
