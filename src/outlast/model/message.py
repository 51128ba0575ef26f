"""Messages of other systems, and the arguments of jobs that are created from them.

    {"$message": {"id": …, "headers": …, "raw": …}, "body": …}
      │                                              └─ the task's own argument
      └─ shown by `ctx.message`; never passed to the handler as an argument

A message that cannot be decoded has a `problem` in place of the argument: the attempt that finds it
ends as undecodable, and the job is dead with the reason and the raw body.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .errors import InvalidArguments, Problem
from .safe_text import MESSAGE_LIMIT, storable_text

MESSAGE = "$message"
MAX_HEADER_CHARS = 10_000  # of one header, id or key of a received message
PREFIX = '{"$message":'  # the first key, so that the start of the text is enough to tell


@dataclass(frozen=True, slots=True)
class Message:
    """A message to or from a broker.

    `id` is the same on every attempt to send it, and on every delivery. `raw` are the bytes on the
    wire. `receipt` is the source's handle to acknowledge it; it is not stored.
    """

    id: str
    raw: bytes = b""
    key: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    receipt: Any = field(default=None, repr=False, compare=False)

    @property
    def body(self) -> Any:
        """The raw bytes, parsed as JSON. Raises ValueError if they are not JSON."""
        return json.loads(self.raw)

    @property
    def size(self) -> int:
        """Bytes of body, key and headers."""
        texts = (self.key or "", *self.headers, *self.headers.values())
        return len(self.raw) + sum(len(text.encode()) for text in texts)


def with_message(args: str, message: Message, *, raw: bool = True) -> str:
    """A job's arguments (the text of a JSON object) with the message that they were read from. For
    a task with secrets `raw` is False: its arguments contain no copy of them."""
    head = PREFIX + json.dumps(_fields(message, raw=raw))
    return f"{head}}}" if args == "{}" else f"{head},{args[1:]}"


def undecodable(message: Message, problem: str, limit: int, *, ascii_only: bool = False) -> str:
    """The arguments of a job whose message cannot be decoded, with as much of the raw body as fits
    into `limit` bytes."""
    raw, fields = message.raw, _fields(message, raw=False)
    problem = storable_text(problem, MESSAGE_LIMIT)

    def text(body: Mapping[str, str], cut: bool) -> str:
        facts = {**fields, **body, **({"cut_from": len(raw)} if cut else {}), "problem": problem}
        return PREFIX + json.dumps(facts) + "}"

    body = _base64(raw) if ascii_only else _body(raw)
    if len(raw) <= limit and len(whole := text(body, cut=False)) <= limit:
        return whole
    (name, full), room = *body.items(), max(0, limit - len(text({"raw64": ""}, cut=True)))
    return text({name: _cut(full, room)}, cut=True)


def _cut(text: str, room: int) -> str:
    """The longest prefix of a text that takes up to `room` characters as JSON; a prefix of base 64
    can be decoded."""
    low, high = 0, min(len(text), room)
    while low < high:
        middle = (low + high + 1) // 2
        fits = len(json.dumps(text[:middle])) - 2 <= room
        low, high = (middle, high) if fits else (low, middle - 1)
    return text[: low - low % 4]


def split_message(text: str, task: str) -> str:
    """A job's arguments without the message that they were read from."""
    stored = json.loads(text)
    facts = stored.pop(MESSAGE)
    if isinstance(facts, dict) and (problem := facts.get("problem")):
        raise InvalidArguments(task, [Problem("", str(problem))])
    return json.dumps(stored)


def message_of(args: str) -> Message | None:
    """The message that a job was created from, if any."""
    if not args.startswith(PREFIX):
        return None
    facts = json.loads(args)[MESSAGE]
    if not isinstance(facts, dict):
        return None
    return Message(
        id=str(facts.get("id", "")),
        raw=_raw(facts),
        key=facts.get("key"),
        headers=facts.get("headers") or {},
    )


def _fields(message: Message, *, raw: bool) -> dict[str, object]:
    given: dict[str, object] = {"id": _text(message.id)}
    if message.key is not None:
        given["key"] = _text(message.key)
    if message.headers:
        given["headers"] = {_text(name): _text(value) for name, value in message.headers.items()}
    return given | (_body(message.raw) if raw else {})


def _text(value: object) -> str:
    """Text of any value: a user's own source may return anything."""
    return storable_text(value if isinstance(value, str) else str(value), MAX_HEADER_CHARS)


def _body(raw: bytes) -> dict[str, str]:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return _base64(raw)
    return {"raw": text} if "\0" not in text else _base64(raw)


def _base64(raw: bytes) -> dict[str, str]:
    return {"raw64": base64.b64encode(raw).decode()}


def _raw(facts: Mapping[str, Any]) -> bytes:
    if "raw64" in facts:
        return base64.b64decode(facts["raw64"])
    return str(facts.get("raw", "")).encode()
