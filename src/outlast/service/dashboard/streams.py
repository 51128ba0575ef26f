"""A part of a page, sent anew whenever there is something new: server-sent events.

Whoever ends it and however (the browser, a stalled line, a token that is revoked, the server's own
shutdown), what it held is given back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, suppress
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from .. import problems
from ..calls import Call
from ..problems import Unavailable

SSE = "text/event-stream"
HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no", "content-type": SSE}
RETRY = b"retry: 2000\n\n"

Parts = Callable[[], AsyncIterator[str]]


class PartStream(Response):
    """`parts` tells what to send, one piece of HTML after the other."""

    def __init__(self, call: Call, parts: Parts) -> None:
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]
        self._call = call
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "HEAD":
            await super().__call__(scope, receive, send)
            return
        service = self._call.service
        with service.viewers.one_more() as room:
            if not room:
                refused = Unavailable("too many look on already: this page is not live", 10.0)
                await problems.answer(refused)(scope, receive, send)
                return
            with service.live.viewer():
                async with self._call.while_allowed() as over:
                    await self._until_somebody_ends_it(over, receive, send)

    async def _until_somebody_ends_it(
        self, over: asyncio.Event, receive: Receive, send: Send
    ) -> None:
        settings = self._call.service.settings
        sending = asyncio.create_task(self._send(send))
        revoked = asyncio.create_task(over.wait())
        enders = {
            sending,
            revoked,
            asyncio.create_task(_gone(receive)),
            asyncio.create_task(self._call.service.events.closing.wait()),
            asyncio.create_task(asyncio.sleep(settings.events_life)),
        }
        try:
            await asyncio.wait(enders, return_when=asyncio.FIRST_COMPLETED)
            told = b"event: over\ndata: token\n\n" if revoked.done() else b""
        finally:
            for task in enders:
                task.cancel()
            await asyncio.gather(*enders, return_exceptions=True)
        with suppress(TimeoutError, OSError):
            async with asyncio.timeout(1.0):
                await send(_body(told, more=False))

    async def _send(self, send: Send) -> None:
        patience = self._call.service.settings.events_stall
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        async with asyncio.timeout(patience):
            await send(start)
            await send(_body(RETRY, more=True))
        async with aclosing(self._parts()) as parts:  # type: ignore[type-var]
            async for part in parts:
                async with asyncio.timeout(patience):
                    await send(_body(spelled(part), more=True))


def spelled(part: str) -> bytes:
    """Each line by itself: none of them can end the event, or begin another."""
    lines = "".join(f"data: {line}\n" for line in part.splitlines())
    return f"event: part\n{lines}\n".encode()


def _body(part: bytes, *, more: bool) -> dict[str, Any]:
    return {"type": "http.response.body", "body": part, "more_body": more}


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
