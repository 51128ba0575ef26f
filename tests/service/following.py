"""Those who follow events, over real sockets: a client that reads, resumes, stalls or runs away."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx

from outlast import Outlast
from outlast.model.claim import Claim
from outlast.ops.finish import finish
from tests.service.serving import bearer
from tests.store.jobs import put_and_take

AT_ONCE = 200  # events in one transaction


@dataclass
class Heard:
    """One server-sent event."""

    id: str | None
    kind: str
    said: dict[str, Any]

    @property
    def done(self) -> Any:
        """What an event of `say` counts."""
        return (self.said.get("data") or {}).get("done")


@dataclass
class Follower:
    """Reads a stream as a browser would, and knows what it would send to resume."""

    url: str
    token: str | None = None
    last: str | None = None
    heard: list[Heard] = field(default_factory=list)
    raw: list[str] = field(default_factory=list)  # every line
    status: int = 0

    @property
    def events(self) -> list[Heard]:
        """What belongs to the sequence."""
        return [one for one in self.heard if one.id is not None]

    @property
    def counted(self) -> list[Any]:
        return [one.done for one in self.events if one.done is not None]

    @property
    def kinds(self) -> list[str]:
        return [one.kind for one in self.heard]

    async def follow(self, until: int | None = None, timeout: float = 30.0) -> Follower:
        """Until the stream ends, or so many events of the sequence were heard in all."""
        headers = bearer(self.token) | ({"last-event-id": self.last} if self.last else {})
        async with (
            asyncio.timeout(timeout),
            httpx.AsyncClient(timeout=None, trust_env=False, verify=False) as client,
            client.stream("GET", self.url, headers=headers) as answer,
        ):
            self.status, number = answer.status_code, len(self.events)
            async for one in self._read(answer):
                self.heard.append(one)
                number += one.id is not None
                if until is not None and number >= until:
                    break
        return self

    async def _read(self, answer: httpx.Response) -> AsyncIterator[Heard]:
        id, kind, data = None, "message", ""
        async for line in answer.aiter_lines():
            self.raw.append(line)
            name, _, value = line.partition(": ")
            if name == "id":
                id = value
            elif name == "event":
                kind = value
            elif name == "data":
                data = value
            elif not line:
                self.last = id or self.last
                if data:
                    yield Heard(id, kind, json.loads(data))
                id, kind, data = None, "message", ""


def claimed(ol: Outlast, **said: Any) -> Claim:
    """A job in a worker's hands, for long."""
    return put_and_take(ol.store.run, **said)


def say(ol: Outlast, held: Claim, numbers: Sequence[int], **extra: Any) -> None:
    """What an attempt says, in order."""
    for start in range(0, len(numbers), AT_ONCE):
        some = numbers[start : start + AT_ONCE]
        ol.store.run(finish, [], [_said(held, n, extra) for n in some], ol.store.events_channel)


def _said(held: Claim, n: int, extra: dict[str, Any]) -> dict[str, Any]:
    data = json.dumps({"done": n, **extra})
    return {"job": held.id, **held.guard, "kind": "progress", "data": data, "n": n}


class Raw:
    """A socket that asks for a stream, and then does as it likes."""

    def __init__(self, url: str, path: str, *, receive: int = 0) -> None:
        place = urlsplit(url)
        assert place.hostname and place.port
        self.socket = socket.socket()
        if receive:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
        self.socket.connect((place.hostname, place.port))
        request = f"GET {path} HTTP/1.1\r\nhost: {place.hostname}\r\n\r\n"
        self.socket.sendall(request.encode())

    def run_away(self, hard: bool) -> None:
        """Closed before anything is read; hard: with whatever is still on its way."""
        if hard:
            linger = struct.pack("ii", 1, 0)
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.socket.close()

    def close(self) -> None:
        self.socket.close()
