"""A part of a page, sent anew whenever there is something new: server-sent events.

Whoever ends it and however (the browser, a stalled line, a token that is revoked, the server's own
shutdown), what it held is given back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, aclosing

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ...model.errors import OutlastError
from .. import problems
from ..calls import Call
from ..lasting import HEADERS, Stalled, body, first_to_end, gone, patiently, say_last
from ..problems import Refused

SSE = "text/event-stream"
RETRY = b"retry: 2000\n\n"

Parts = Callable[[], AsyncIterator[str]]


class PartStream(Response):
    """`parts` tells what to send, one piece of HTML after the other."""

    def __init__(self, call: Call, parts: Parts) -> None:
        super().__init__(headers={**HEADERS, "content-type": SSE})
        del self.headers["content-length"]
        self._call = call
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "HEAD":
            await super().__call__(scope, receive, send)
            return
        service = self._call.service
        with ExitStack() as held:
            try:
                held.enter_context(service.viewers.slot(self._call.who))
            except Refused as full:
                await problems.answer(full)(scope, receive, send)
                return
            held.enter_context(service.live.viewer())
            async with self._call.while_allowed() as over:
                reason = await self._until_it_ends(over, receive, send)
        if reason != "gone":
            said = b"event: over\ndata: token\n\n" if reason == "token" else b""
            await say_last(said, scope, receive, send)

    async def _until_it_ends(self, over: asyncio.Event, receive: Receive, send: Send) -> str:
        service = self._call.service
        reason, failed = await first_to_end(
            self._send(send),
            {
                "gone": gone(receive),
                "token": over.wait(),
                "closing": service.events.closing.wait(),
                "life": asyncio.sleep(service.settings.events_life),
            },
        )
        if isinstance(failed, OSError):
            return "gone"
        if failed is not None and not isinstance(failed, OutlastError | Stalled):
            raise failed
        return reason  # a browser comes back by itself

    async def _send(self, send: Send) -> None:
        patience = self._call.service.settings.events_stall
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await patiently(patience, send(start))
        await patiently(patience, send(body(RETRY, more=True)))
        async with aclosing(self._parts()) as parts:  # type: ignore[type-var]
            async for part in parts:
                await patiently(patience, send(body(spelled(part), more=True)))


def spelled(part: str) -> bytes:
    """Each line by itself: none of them can end the event, or begin another."""
    lines = "".join(f"data: {line}\n" for line in part.splitlines())
    return f"event: part\n{lines}\n".encode()
