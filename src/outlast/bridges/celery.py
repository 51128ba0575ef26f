"""A Celery queue as a source, through Redis or RabbitMQ, while Celery's own workers consume it,
too.

A message has the id of the task, the body (`[args, kwargs, embed]` as JSON) and Celery's headers
as texts (`task`, `id`, `retries`, `eta`, `expires`, …; values that are not texts as JSON). If a
message cannot be decoded this way, it has its original bytes and the header `problem`.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..model.errors import InvalidOption, Unsupported
from ..model.options import check_name
from .celery_rabbit import MovedQueue
from .celery_redis import CeleryList
from .protocols import DEFAULT_REDELIVERY_S, Message, Source

JSON_TYPES = ("application/json", "json")
PROBLEM = "problem"
BODY_FIELDS = ("task", "id", "retries", "eta", "expires", "timelimit")  # of protocol 1
EMBEDDED = ("callbacks", "errbacks", "chain", "chord")


class CeleryQueue:
    """`CeleryQueue("redis://…", queue="celery")`, or `amqp://…`. Messages are JSON; others become
    dead jobs, and nothing is ever unpickled.

    Through Redis, a message that a dead process had received is delivered again after `idle`
    seconds; `key_prefix` is Celery's `global_keyprefix`. Through RabbitMQ, up to `prefetch`
    messages are held at once."""

    def __init__(
        self,
        url: str,
        *,
        queue: str = "celery",
        idle: float | None = None,
        key_prefix: str = "",
        prefetch: int | None = None,
        redelivery: float = DEFAULT_REDELIVERY_S,
    ) -> None:
        check_name("queue", queue)
        self.queue = queue
        self._source: Source
        if isinstance(url, str) and url.startswith(("redis://", "rediss://", "unix://")):
            if prefetch is not None:
                raise InvalidOption(option="prefetch", reason="is for RabbitMQ")
            self.low_first = True
            self._source = CeleryList(url, queue, key_prefix, idle, redelivery)
        elif isinstance(url, str) and url.startswith(("amqp://", "amqps://", "pyamqp://")):
            if idle is not None or key_prefix:
                raise InvalidOption(option="idle and key_prefix", reason="are for Redis")
            self.low_first = False
            self._source = MovedQueue(url.removeprefix("py"), queue, prefetch, redelivery)
        else:
            raise InvalidOption(option="url", reason="must be redis://… or amqp://…")

    @property
    def redelivery(self) -> float:
        return self._source.redelivery

    async def open(self) -> None:
        await self._source.open()

    async def receive(self, limit: int, wait: float) -> Sequence[Message]:
        return [read_message(one) for one in await self._source.receive(limit, wait)]

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        await self._source.acknowledge(messages)

    async def hand_back(self, messages: Sequence[Message]) -> None:
        await self._source.hand_back(messages)

    async def give_back(self) -> int:
        """Return messages that were received and not stored to Celery's queue, after every bridge
        has been stopped, in order to stay with Celery. Returns their number."""
        if not isinstance(self._source, CeleryList):
            raise Unsupported(reason=f"move outlast.{self.queue} to {self.queue} with a shovel")
        await self._source.open()
        try:
            return await self._source.give_back()
        finally:
            await self._source.close()

    async def lag(self) -> int | None:
        return await self._source.lag()

    async def close(self) -> None:
        await self._source.close()

    def __repr__(self) -> str:
        return f"Celery's queue {self.queue}, {self._source!r}"


def read_message(received: Message) -> Message:
    """A message of Celery, however it was transported. It never raises."""
    try:
        envelope = _of_rabbit(received) if _is_amqp(received) else _of_redis(received.raw)
        return _normalized(envelope, received.receipt)
    except Exception as error:
        digest = hashlib.sha256(received.raw).hexdigest()
        problem = {PROBLEM: f"{type(error).__name__}: {error}"}
        return Message(f"sha256:{digest}", received.raw, headers=problem, receipt=received.receipt)


def _is_amqp(received: Message) -> bool:
    return hasattr(received.receipt, "content_type")


def _of_rabbit(received: Message) -> dict[str, object]:
    wire = received.receipt
    return {
        "body": received.raw,
        "content-type": wire.content_type,
        "content-encoding": wire.content_encoding,
        "headers": dict(wire.headers or {}),
        "properties": {"correlation_id": wire.correlation_id, "priority": wire.priority},
    }


def _of_redis(raw: bytes) -> dict[str, object]:
    """Kombu's envelope; its body is base 64."""
    envelope = json.loads(raw)
    properties = envelope.get("properties") or {}
    body = envelope["body"]
    encoding = properties.get("body_encoding")
    if encoding == "base64":
        body = base64.b64decode(body, validate=True)
    elif encoding is not None:
        raise ValueError(f"its body has the encoding {encoding!r:.80}")
    return {**envelope, "body": body.encode() if isinstance(body, str) else body}


def _normalized(envelope: Mapping[str, Any], receipt: Any) -> Message:
    headers, properties = envelope.get("headers") or {}, envelope.get("properties") or {}
    kind = envelope.get("content-type")
    if kind not in JSON_TYPES:
        raise ValueError(f"its content type is {kind!r:.80}: only JSON is read")
    if headers.get("compression"):
        raise ValueError(f"it is compressed by {headers['compression']!r:.80}")
    body = json.loads(envelope["body"].decode(envelope.get("content-encoding") or "utf-8"))
    if "task" not in headers and isinstance(body, dict):  # protocol 1
        headers = {**headers, **{name: body.get(name) for name in BODY_FIELDS}}
        embed = {name: body.get(name) for name in EMBEDDED}
        body = [body.get("args") or [], body.get("kwargs") or {}, embed]
    id = headers.get("id") or properties.get("correlation_id")
    if not isinstance(headers.get("task"), str) or not isinstance(id, str) or not id:
        raise ValueError("it has no task or no id: it is not a message of Celery")
    if not isinstance(body, list) or len(body) != 3:
        raise ValueError("its body is not [args, kwargs, embed]")
    known = {**headers, "id": id, "priority": properties.get("priority")}
    texts = {name: _text(value) for name, value in known.items() if value is not None}
    return Message(id, json.dumps(body).encode(), headers=texts, receipt=receipt)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)
