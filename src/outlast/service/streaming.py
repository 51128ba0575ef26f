"""Streaming responses: server-sent events or JSON lines, until client, job or server ends them.

If the client does not read the last frame, the connection is cut: a connection that is only closed
stays open until all written data has been read.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack
from typing import TYPE_CHECKING, Protocol

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..protocol import NDJSON, SSE, FrameFields
from . import problems
from .json_response import json_line
from .problems import RequestRefused

if TYPE_CHECKING:
    from .auth.principals import Principal
    from .events.broadcaster import Broadcaster

# An ASGI extension of `service.server`: cuts the connection, called without arguments. Other
# servers keep the connection of a client that does not read until they detect that it is dead.
HANG_UP = "outlast.hang_up"

STREAM_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}
FINAL_SEND_TIMEOUT_S = 1.0  # for the last frame
GONE = "gone"  # the client has disconnected


class ClientStalled(Exception):
    """The client no longer reads."""


# Formats


class StreamFormat(ABC):
    """A format: `write` encodes a frame, which has a `type`; `keep_alive` is sent when idle."""

    media: str
    keep_alive: bytes

    @abstractmethod
    def write(self, frame: FrameFields) -> bytes: ...


class ServerSentEvents(StreamFormat):
    media = SSE
    keep_alive = b": still here\n\n"

    def write(self, frame: FrameFields) -> bytes:
        return b"event: %s\ndata: %s\n\n" % (frame["type"].encode(), json_line(frame))


class JsonLines(StreamFormat):
    media = NDJSON
    keep_alive = b"\n"

    def write(self, frame: FrameFields) -> bytes:
        return json_line(frame) + b"\n"


def format_for(accept: str) -> StreamFormat:
    """The format by the Accept header; JSON lines by default."""
    return ServerSentEvents() if SSE in accept.lower() else JsonLines()


def sse_event(text: str, event: str | None = None, id: str | None = None) -> bytes:
    """A server-sent event. The prefix on each line keeps content from ending it."""
    fields = [("id", id)] * (id is not None) + [("event", event)] * (event is not None)
    lines = [*fields, *(("data", line) for line in text.splitlines())]
    return "".join([*(f"{name}: {value}\n" for name, value in lines), "\n"]).encode()


def sse_retry(seconds: float) -> bytes:
    """The time that a client should wait before it reconnects."""
    return f"retry: {round(seconds * 1000)}\n\n".encode()


# Responses


class StreamCaller(Protocol):
    """The caller of a stream: a request of this service, or of an endpoint of another app."""

    @property
    def who(self) -> Principal: ...

    @property
    def broadcaster(self) -> Broadcaster: ...

    @property
    def longest_s(self) -> float:
        """Seconds after which the caller wants the stream to end."""
        ...

    def while_allowed(self) -> AbstractAsyncContextManager[asyncio.Event]:
        """An event that is set when the caller may no longer read."""
        ...


class StreamResponse(Response, ABC):
    """A response that ends by itself, or by the client, a revoked token, the server's shutdown or
    its maximum lifetime. Its resources are always released."""

    def __init__(self, call: StreamCaller, media: str, lifetime_s: float) -> None:
        super().__init__(headers={**STREAM_HEADERS, "content-type": media})
        del self.headers["content-length"]
        self._call = call
        self._lifetime_s = lifetime_s

    @abstractmethod
    def acquire(self, held: ExitStack) -> None:
        """Acquire the stream's resources, or refuse the request."""

    @abstractmethod
    async def send_chunks(self, send: Send) -> None: ...

    @abstractmethod
    def end_reason(self, error: BaseException | None) -> str:
        """Why `send_chunks` ended; raises unexpected errors."""

    @abstractmethod
    def last_frame(self, reason: str) -> bytes: ...

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "HEAD":
            await super().__call__(scope, receive, send)
            return
        with ExitStack() as held:
            try:
                self.acquire(held)
            except RequestRefused as full:
                await problems.problem_response(full)(scope, receive, send)
                return
            async with self._call.while_allowed() as revoked:
                reason = await self._run_until_end(revoked, receive, send)
        if reason != GONE:
            await send_final(self.last_frame(reason), scope, receive, send)

    async def _run_until_end(self, revoked: asyncio.Event, receive: Receive, send: Send) -> str:
        reason, error = await race(
            self._start(send),
            {
                GONE: disconnected(receive),
                "token": revoked.wait(),
                "closing": self._call.broadcaster.closing.wait(),
                "life": asyncio.sleep(self._lifetime_s),
            },
        )
        return reason or self.end_reason(error)

    async def _start(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await self._send_in_time(send(start))
        await self.send_chunks(send)

    async def send_chunk(self, send: Send, chunk: bytes) -> None:
        await self._send_in_time(send(body_message(chunk, more=True)))

    async def _send_in_time(self, sending: Awaitable[None]) -> None:
        await send_with_timeout(self._call.broadcaster.settings.events_stall, sending)


async def race(
    sending: Coroutine[object, object, None],
    others: Mapping[str, Coroutine[object, object, object]],
) -> tuple[str, BaseException | None]:
    """Run coroutines until one ends, and end the others; returns its name ("" for the sender), and
    the sender's error."""
    sender = asyncio.create_task(sending)
    enders = {sender: ""} | {asyncio.create_task(other): name for name, other in others.items()}
    try:
        await asyncio.wait(enders, return_when=asyncio.FIRST_COMPLETED)
        name = next(enders[task] for task in enders if task.done())
    finally:
        for task in enders:
            task.cancel()
        await asyncio.gather(*enders, return_exceptions=True)
    return name, None if name else sender.exception()


async def send_with_timeout(seconds: float, sending: Awaitable[None]) -> None:
    try:
        async with asyncio.timeout(seconds):
            await sending
    except TimeoutError:
        raise ClientStalled from None


async def send_final(content: bytes, scope: Scope, receive: Receive, send: Send) -> None:
    """Send the last frame; if the client does not read it, cut the connection."""
    try:
        await send_with_timeout(FINAL_SEND_TIMEOUT_S, send(body_message(content, more=False)))
    except ClientStalled:
        if hang_up := scope.get("extensions", {}).get(HANG_UP):
            hang_up()
            await disconnected(receive)  # the server has noticed
    except OSError:
        pass  # the client has gone


def body_message(chunk: bytes, *, more: bool) -> dict[str, object]:
    return {"type": "http.response.body", "body": chunk, "more_body": more}


async def disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
