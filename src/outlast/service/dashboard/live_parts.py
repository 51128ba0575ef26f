"""A part of a page as a stream of server-sent events, sent again whenever it changes.

However the stream ends (browser, stalled connection, revoked token, server shutdown), its resources
are released.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, aclosing

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ...model.errors import OutlastError
from .. import problems
from ..problems import RequestRefused
from ..request import RequestContext
from ..streaming import (
    STREAM_HEADERS,
    ClientStalled,
    body_message,
    disconnected,
    race,
    send_final,
    send_with_timeout,
)

SSE = "text/event-stream"
RETRY_FRAME = b"retry: 2000\n\n"

Parts = Callable[[], AsyncIterator[str]]


class PartStream(Response):
    """`parts` yields the HTML to send, one version after the other."""

    def __init__(self, call: RequestContext, parts: Parts) -> None:
        super().__init__(headers={**STREAM_HEADERS, "content-type": SSE})
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
            except RequestRefused as full:
                await problems.problem_response(full)(scope, receive, send)
                return
            held.enter_context(service.live_view.viewer())
            async with self._call.while_allowed() as revoked:
                reason = await self._run_until_end(revoked, receive, send)
        if reason != "gone":
            last_frame = b"event: over\ndata: token\n\n" if reason == "token" else b""
            await send_final(last_frame, scope, receive, send)

    async def _run_until_end(self, revoked: asyncio.Event, receive: Receive, send: Send) -> str:
        service = self._call.service
        reason, failed = await race(
            self._send(send),
            {
                "gone": disconnected(receive),
                "token": revoked.wait(),
                "closing": service.broadcaster.closing.wait(),
                "life": asyncio.sleep(service.settings.events_life),
            },
        )
        if isinstance(failed, OSError):
            return "gone"
        if failed is not None and not isinstance(failed, OutlastError | ClientStalled):
            raise failed
        return reason  # browsers reconnect

    async def _send(self, send: Send) -> None:
        timeout = self._call.service.settings.events_stall
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send_with_timeout(timeout, send(start))
        await send_with_timeout(timeout, send(body_message(RETRY_FRAME, more=True)))
        async with aclosing(self._parts()) as parts:  # type: ignore[type-var]
            async for part in parts:
                await send_with_timeout(timeout, send(body_message(sse_frame(part), more=True)))


def sse_frame(part: str) -> bytes:
    """An event frame; a prefix on each line keeps content from ending it or starting another."""
    lines = "".join(f"data: {line}\n" for line in part.splitlines())
    return f"event: part\n{lines}\n".encode()
