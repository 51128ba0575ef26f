"""Redis: a stream or a sorted set as a sink, a stream with a consumer group as a source.

A message in a stream is an entry with the fields `id`, `body`, `key` and `headers` (JSON). In a
sorted set it is a member: the same as one JSON text, with the time of the send as its score, unless
`score` says another; sent again, it is the same member.
"""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from ..model.errors import InvalidOption
from ..model.ids import new_instance_id
from ..model.options import seconds
from .client_library import require_client
from .protocols import DEFAULT_REDELIVERY_S, Bad, Limits, Message, Retry, SendOutcome, SinkDown

if TYPE_CHECKING:
    from collections.abc import Iterator

    import redis.asyncio as redis_client

# First words of answers about the state of the server: no message is at fault. Those that the
# client makes a type of have lost their first word.
DOWN = ("NOREPLICAS", "MISCONF", "BUSY", "NOGROUP")
# Atomic: a consumer that is removed with messages of its own would take them with it.
REMOVE_CONSUMER = """
if #redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2]) == 0 then
    return redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
end
"""
DEFAULT_IDLE_S = 60.0
DEFAULT_LIMITS = Limits(items=1000, bytes=16_000_000)
SOCKET_TIMEOUT_S = 10.0  # unless the URL has another
BLOCK_S = 2.0  # of one call that waits: the socket's time limit must never end it
PENDING_CHECK_S = 5.0  # between looks for messages of consumers that are gone

Target = str | Callable[[Message], str]


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
        self._url = checked_redis_url(url)
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
        self._client: redis_client.Redis | None = None
        self._claimed_at = 0.0
        self._claim_from = "0-0"

    async def open(self) -> None:
        import redis.asyncio as redis_client

        self._client = redis_client.from_url(self._url, socket_timeout=SOCKET_TIMEOUT_S)
        # Entries are bytes that anybody wrote, whatever the URL says.
        self._client.connection_pool.connection_kwargs["decode_responses"] = False
        with redis_outages():
            await self._client.ping()
            if self._group is not None:
                await self._create_group()

    async def _create_group(self) -> None:
        from redis.exceptions import ResponseError

        try:
            await self._redis.xgroup_create(
                self._stream, self._group, id=self._start, mkstream=True
            )
        except ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is None:
            return
        try:
            if self._group is not None:
                given: Any = (self._stream, self._group, self._consumer)
                with suppress(Exception):  # it may be away, or without scripts
                    await client.eval(REMOVE_CONSUMER, 1, *given)
        finally:
            await client.aclose()

    @property
    def _redis(self) -> Any:
        if self._client is None:
            raise SinkDown("it is not open")
        return self._client

    # Sink

    async def send(self, messages: Sequence[Message]) -> Sequence[SendOutcome]:
        """One round trip; each command has its own answer."""
        with redis_outages():
            async with self._redis.pipeline(transaction=False) as pipe:
                for message in messages:
                    self._add(pipe, message)
                answers = await pipe.execute(raise_on_error=False)
            if all(isinstance(one, Exception) and _is_down(one) for one in answers):
                raise answers[0]
        return [_outcome(answer) for answer in answers]

    def _add(self, pipe: Any, message: Message) -> None:
        if self._zset is not None:
            member = json.dumps(_fields(message), ensure_ascii=False)
            pipe.zadd(_name(self._zset, message), {member: self._score(message)})
            return
        assert self._stream is not None
        limit = {} if self._maxlen is None else {"maxlen": self._maxlen, "approximate": True}
        fields = {**_fields(message, text=False), "body": message.raw}
        pipe.xadd(_name(self._stream, message), fields, **limit)

    # Source

    async def receive(self, limit: int, wait: float) -> Sequence[Message]:
        """Messages of consumers that are gone, else new ones. It waits in short calls, and looks
        for the former between them."""
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
        own_limit = self._redis.connection_pool.connection_kwargs.get("socket_timeout")
        wait = min(wait, BLOCK_S, (own_limit or SOCKET_TIMEOUT_S) / 2)
        block, given = max(1, int(wait * 1000)), {self._stream: ">"}
        answer = await self._redis.xreadgroup(
            self._group, self._consumer, given, count=limit, block=block
        )
        return [_read(*entry) for entry in _entries(answer)]

    async def _take_over(self, limit: int) -> list[Message]:
        """Entries that another consumer has held too long, looked for now and then."""
        now = time.monotonic()
        if now - self._claimed_at < PENDING_CHECK_S and self._claim_from == "0-0":
            return []
        self._claimed_at = now
        start, entries, *_ = await self._redis.xautoclaim(
            self._stream, self._group, self._consumer, int(self._idle * 1000), self._claim_from,
            count=limit,
        )  # fmt: skip
        self._claim_from = start.decode() if isinstance(start, bytes) else str(start)
        return [_read(id, fields) for id, fields in entries if fields]

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        self._require_group()
        with redis_outages():
            await self._redis.xack(self._stream, self._group, *(one.receipt for one in messages))

    async def hand_back(self, messages: Sequence[Message]) -> None:
        """Nobody's, and idle for long enough: the next look for such entries takes them over."""
        idle = int(self._idle * 1000) + 1
        with redis_outages():
            await self._redis.xclaim(
                self._stream, self._group, "handed-back", 0, [one.receipt for one in messages],
                idle=idle, justid=True,
            )  # fmt: skip

    async def lag(self) -> int | None:
        """Entries that the group has not been given, and those that it has not acknowledged."""
        self._require_group()
        with redis_outages():
            groups = await self._redis.xinfo_groups(self._stream)
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
        shown = name if isinstance(name, str) else getattr(name, "__name__", "by message")
        return f"Redis {shown_redis_url(self._url)}, {kind} {shown}{group}"


def _fields(message: Message, *, text: bool = True) -> dict[str, Any]:
    fields: dict[str, object] = {"id": message.id}
    if message.key is not None:
        fields["key"] = message.key
    if message.headers:
        headers = dict(message.headers)
        fields["headers"] = headers if text else json.dumps(headers, ensure_ascii=False)
    if text:
        fields["body"] = message.raw.decode("utf-8", "backslashreplace")
    return fields


def _read(entry: bytes, fields: dict[bytes, bytes]) -> Message:
    """An entry of ours, or of somebody else: its id is the field `id`, else that of the entry. An
    entry without the field `body` is read as the JSON object of its fields."""
    at = entry.decode()
    if b"body" not in fields:
        texts = {_text(name): _text(value) for name, value in fields.items()}
        return Message(at, json.dumps(texts).encode(), receipt=entry)
    try:
        headers = json.loads(fields.get(b"headers") or b"{}")
        headers = {str(name): str(value) for name, value in headers.items()}
    except Exception:  # whatever somebody wrote there: one entry must not stop the source
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
    """Both protocols: a list of pairs (RESP2), or a mapping (RESP3)."""
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
    # Answers that may differ another time, or once an operator has done something.
    transient = (
        exceptions.AskError, exceptions.TryAgainError, exceptions.ExecAbortError,
        exceptions.NoPermissionError,
    )  # fmt: skip
    reason = f"{type(answer).__name__}: {answer}"
    about_message = isinstance(answer, exceptions.ResponseError | exceptions.DataError)
    if isinstance(answer, transient) or _is_down(answer) or not about_message:
        return Retry(reason)
    return Bad(reason)


@contextmanager
def redis_outages() -> Iterator[None]:
    """Errors of the connection, and answers about the server's state, as `SinkDown`."""
    from redis import exceptions

    away = (exceptions.ConnectionError, exceptions.TimeoutError, exceptions.AuthenticationError)
    try:
        yield
    except (*away, OSError) as error:
        raise SinkDown(f"{type(error).__name__}: {error}") from error
    except exceptions.RedisError as error:
        if _is_down(error):
            raise SinkDown(f"{type(error).__name__}: {error}") from error
        raise


def _is_down(error: Exception) -> bool:
    """Whether an answer is about the server."""
    from redis import exceptions

    kinds = (
        exceptions.ClusterDownError, exceptions.ReadOnlyError, exceptions.OutOfMemoryError,
        exceptions.ConnectionError, exceptions.TimeoutError,
    )  # fmt: skip
    return isinstance(error, kinds) or str(error).partition(" ")[0] in DOWN


def _name(target: Target, message: Message) -> str:
    return target if isinstance(target, str) else target(message)


def _text(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace")


def checked_redis_url(url: str) -> str:
    if not isinstance(url, str) or not url.startswith(("redis://", "rediss://", "unix://")):
        raise InvalidOption(option="url", reason="must be like redis://127.0.0.1:6379/0")
    return url


def shown_redis_url(url: str) -> str:
    """A password may have any character, and options may have passwords: where the two cannot be
    told apart, nothing is shown."""
    scheme, _, rest = url.partition("://")
    hidden, _, shown = rest.rpartition("@")
    return f"{scheme}://…" if "?" in hidden else f"{scheme}://{shown.partition('?')[0]}"
